// SPDX-License-Identifier: Apache-2.0
// What a generated kernel does by the contract of device/kernel_text.hpp, with the slow reference's products: for the
// fake drivers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"

#include "core/matrix.hpp"
#include "device/kernel_text.hpp"
#include "tests/device/fake_kit.hpp"
#include "tests/support/expected.hpp"

namespace tandem::test {

struct MadeText {
  core::Matrix matrix{0, 0};
  device::KernelSpec spec{};
};

// What texts were made from. Of the process: caches on disk outlive a driver.
struct MadeTexts {
  std::mutex mutex;
  std::map<std::string, MadeText> all;
};
inline MadeTexts &made_texts() {
  static MadeTexts texts;
  return texts;
}
inline std::optional<MadeText> made_from(const std::string &text) {
  const std::lock_guard lock(made_texts().mutex);
  const auto found = made_texts().all.find(text);
  return found != made_texts().all.end() ? std::optional(found->second) : std::nullopt;
}
inline device::KernelText note_text(device::KernelText text, const core::Matrix &matrix,
                                    const device::KernelSpec &spec) {
  const std::lock_guard lock(made_texts().mutex);
  made_texts().all[text.text] = {matrix, spec};
  return text;
}

// A name of its own for each kernel, in place of a text that a compiler could read.
inline device::KernelText fake_generate(const core::Matrix &matrix, const device::KernelSpec &spec) {
  const bool any_shape = spec.technique == device::Technique::tables && spec.binding != device::Binding::arguments;
  device::KernelText made;
  made.text = base::text("kernel ", static_cast<int>(spec.technique), " ", static_cast<int>(spec.mode), " ",
                         static_cast<int>(spec.access), " ", static_cast<int>(spec.binding), " ",
                         spec.tuning.element_bytes, " ", spec.tuning.elements_per_item);
  if (!any_shape) made.text += base::text(" ", matrix.rows(), " ", matrix.columns());
  for (unsigned r = 0; r < matrix.rows() && spec.technique != device::Technique::tables; ++r)
    made.text += " " + base::join(matrix.row(r), " ");
  return note_text(std::move(made), matrix, spec);
}

inline std::uint64_t tile_bytes_of(const device::KernelSpec &spec) {
  const device::KernelTuning &tuning = spec.tuning;
  return std::uint64_t{tuning.element_bytes} * tuning.elements_per_item * tuning.local[0] *
         (spec.technique == device::Technique::tables ? tuning.local[1] : 1);
}

// "", or what is wrong with a row of a table (begin, end, length) in a launch of so many groups a row.
inline const char *wrong_with_row(const device::KernelSpec &spec, const std::uint64_t *row, std::uint64_t group_count) {
  if (row[0] > row[1] || row[1] > row[2] || (row[1] - row[0]) % spec.tuning.element_bytes != 0)
    return "a row from beyond its end";
  const std::uint64_t for_ends = row[0] != 0 || row[1] != row[2] ? 1 : 0, tile = tile_bytes_of(spec);
  return group_count < for_ends || (row[1] - row[0] + tile - 1) / tile > (group_count - for_ends) * spec.tuning.local[2]
             ? "a row has too many bytes for its groups"
             : "";
}

// The coefficients that technique tables finds in its tables.
inline void read_tables(core::Matrix &matrix, const std::uint32_t *tables) {
  for (unsigned r = 0; r < matrix.rows(); ++r)
    for (unsigned c = 0; c < matrix.columns(); ++c)
      matrix.at(r, c) =
          static_cast<std::uint8_t>(tables[(std::size_t{r / 4} * matrix.columns() + c) * 32 + 1] >> r % 4 * 8);
}

// A launch, and where the driver has its memory: `bytes` of a part, of a shard those from `start` on. Null: they are
// not there, which was told.
struct KernelRun {
  enum Part { words, shard, records, tables };  // words: the starts of the shards, or the table of stripes
  static constexpr std::array<const char *, 4> kNames = {"table", "kernel", "records", "tables"};

  MadeText made;
  unsigned columns = 0, rows = 0;
  device::KernelRange range;    // of a table of stripes the groups alone
  std::uint64_t row_count = 0;  // of the table; 0: there is none
  std::function<std::uint8_t *(Part part, unsigned shard, std::uint64_t start, std::uint64_t bytes)> find{};

  void run(DriverCounts &counts, const DriverScript &script) const {
    const bool is_wrong = counts.kernels++ >= script.wrong_kernel;
    const std::uint64_t wrong_from = is_wrong ? script.wrong_byte : UINT64_MAX;
    const std::uint64_t shards = rows + columns, row_words = row_count != 0 ? 3 + shards : shards;
    std::vector<std::uint64_t> all(std::max<std::uint64_t>(row_count, 1) * row_words);
    const std::uint8_t *const from = find(words, 0, 0, all.size() * 8);
    if (from == nullptr) return;
    std::memcpy(all.data(), from, all.size() * 8);
    if (row_count == 0) return run_row(counts, wrong_from, range.begin, range.end, range.length, all.data());
    for (std::uint64_t i = 0; i < row_count; ++i) {  // each as a kernel of its own
      const std::uint64_t *const row = &all[i * row_words];
      if (const std::string wrong = wrong_with_row(made.spec, row, range.group_count); !wrong.empty())
        return counts.violate(wrong);
      if (row[2] != 0) run_row(counts, wrong_from, row[0], row[1], row[2], row + 3);
    }
  }

 private:
  void run_row(DriverCounts &counts, std::uint64_t wrong_from, std::uint64_t begin, std::uint64_t end,
               std::uint64_t length, const std::uint64_t *starts) const {
    const device::KernelSpec &spec = made.spec;
    core::Matrix matrix = made.matrix;
    if (spec.technique == device::Technique::tables) {
      matrix = core::Matrix(rows, columns);
      const auto *of_tables =
          find(tables, 0, 0, std::uint64_t{(rows + 3) / 4} * columns * device::kTableBytesPerColumn);
      if (of_tables == nullptr) return;
      read_tables(matrix, reinterpret_cast<const std::uint32_t *>(of_tables));
    }
    if (matrix.rows() != rows || matrix.columns() != columns) return counts.violate("a kernel of another shape");
    std::vector<std::uint8_t *> shards;
    for (unsigned i = 0; i < rows + columns; ++i) {
      if (spec.access == device::Access::aligned && starts[i] % spec.tuning.element_bytes != 0)
        counts.violate(base::text("shard ", i, " at ", starts[i], " is not aligned to ", spec.tuning.element_bytes));
      shards.push_back(find(shard, i, starts[i], length));
      if (shards.back() == nullptr) return;
    }
    const std::uint64_t tile = tile_bytes_of(spec), tiles = (end - begin + tile - 1) / tile;
    std::uint8_t *of_records = nullptr;
    if (spec.mode == core::Mode::compare) of_records = find(records, 0, 0, ((tiles + 2) * rows + 1) * 8);
    if (spec.mode == core::Mode::compare && of_records == nullptr) return;
    apply(matrix, shards, wrong_from, begin, end, length, reinterpret_cast<std::uint32_t *>(of_records));
  }

  // shards: inputs and then outputs. record_words: of a compare.
  void apply(const core::Matrix &matrix, const std::vector<std::uint8_t *> &shards, std::uint64_t wrong_from,
             std::uint64_t begin, std::uint64_t end, std::uint64_t length, std::uint32_t *record_words) const {
    const std::vector<const std::uint8_t *> inputs(shards.begin(), shards.begin() + matrix.columns());
    const Shards product = expected(matrix.data(), matrix.rows(), matrix.columns(), inputs.data(), length);
    const std::uint64_t tile_bytes = tile_bytes_of(made.spec), tiles = (end - begin + tile_bytes - 1) / tile_bytes;
    for (unsigned r = 0; r < matrix.rows(); ++r) {
      std::uint8_t *const output = shards[matrix.columns() + r];
      for (std::uint64_t i = 0; i < length; ++i) {
        const bool is_last = r + 1 == matrix.rows(), is_unseen = is_last && i >= wrong_from;
        const auto value = static_cast<std::uint8_t>(product[r][i] ^ (is_last && i == wrong_from));
        if (made.spec.mode == core::Mode::assign) output[i] = value;
        if (made.spec.mode == core::Mode::accumulate) output[i] ^= value;
        if (made.spec.mode != core::Mode::compare || output[i] == product[r][i] || is_unseen) continue;
        const bool is_head = i < begin, is_tail = i >= end;
        const std::uint64_t tile = is_head ? tiles : is_tail ? tiles + 1 : (i - begin) / tile_bytes;
        record_words[0] = std::min(record_words[0], static_cast<std::uint32_t>(tile));
        record_words[1] = std::min(record_words[1], static_cast<std::uint32_t>(~(tile + 1)));
        std::uint32_t *const record = record_words + (1 + tile * matrix.rows() + r) * 2;
        ++record[0];
        record[1] = std::min(record[1], static_cast<std::uint32_t>(is_head   ? i
                                                                   : is_tail ? i - end
                                                                             : (i - begin) % tile_bytes));
      }
    }
  }
};

}  // namespace tandem::test
