// SPDX-License-Identifier: Apache-2.0
// Some rows of one stripe during a call: their entries, and the state of their blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "volume/page.hpp"
#include "volume/spares.hpp"

namespace tandem::volume {

enum class Have : std::uint8_t {
  none,  // not read yet
  good,  // the block is in memory
  bad,   // it is unreadable, its checksum is wrong, or its content is unknown
  lost   // bad, and it cannot be computed from the others
};

// Rows begin .. end-1 of a column, counted from the view's first row.
struct Part {
  std::uint32_t column, begin, end;
};

struct View {
  View(Spares &memory, const Geometry &geometry, std::uint64_t stripe_number, std::uint32_t first_row,
       std::uint32_t row_count)
      : stripe(stripe_number),
        first(first_row),
        count(row_count),
        entries(std::size_t{geometry.member_count()} * row_count),
        have(entries.size(), Have::none),
        generations(entries.size(), kUnknown),
        words(std::size_t{geometry.m} * row_count),
        stale(entries.size()),
        contradicts(row_count),
        spares(memory),
        buffer(memory.take(entries.size() * kBlockBytes)) {
    for (std::uint32_t column = 0; column < geometry.member_count(); ++column)
      columns.push_back(buffer.data() + std::size_t{column} * row_count * kBlockBytes);
  }

  ~View() { spares.give_back(std::move(buffer)); }
  View(const View &) = delete;
  View &operator=(const View &) = delete;

  std::uint64_t stripe;
  std::uint32_t first, count;
  std::vector<Entry> entries;  // of column c, row r at c * count + r
  std::vector<Have> have;      // likewise
  // What the row says of each block, also of those without an entry; kUnknown if it does not know enough.
  std::vector<std::uint64_t> generations;  // likewise
  std::vector<std::uint64_t> words;        // of parity i, row r at i * count + r
  std::vector<bool> stale;                 // of column c, row r: its entry was of an old copy
  std::vector<bool> contradicts;           // of row r: its blocks do not belong together, and none can be believed
  Spares &spares;
  Buffer buffer;                     // no part of it is touched before it is needed
  std::vector<std::byte *> columns;  // memory of a column's rows; a read may use the caller's memory
  bool unprotected = false;          // a block is lost because it lies in a window of delayed parity

  std::size_t at(std::uint32_t column, std::uint32_t row) const { return std::size_t{column} * count + row; }
  std::byte *block(std::uint32_t column, std::uint32_t row) const {
    return columns[column] + std::size_t{row} * kBlockBytes;
  }
};

}  // namespace tandem::volume
