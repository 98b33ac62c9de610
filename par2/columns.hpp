// SPDX-License-Identifier: Apache-2.0
// Slices are coded in columns: as many bytes of each slice as fit into memory.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/options.hpp"
#include "par2/files.hpp"
#include "par2/ranges.hpp"

namespace tandem::par2 {

constexpr std::uint64_t kDefaultMemory = 64u << 20;

struct Column {
  std::uint64_t offset;  // in each slice
  std::size_t bytes;
  std::span<void *const> inputs, outputs;
};

// For each column: read(column, first, end) for groups of inputs, code(column), write for groups of outputs.
template <class Read, class Code, class Write>
void code_columns(std::size_t inputs, std::size_t outputs, std::uint64_t slice_bytes, std::uint64_t memory_bytes,
                  base::Crew &crew, const Read &read, const Code &code, const Write &write) {
  constexpr std::uint64_t kUnit = 64;
  const std::uint64_t most = std::max(memory_bytes / (inputs + outputs) / kUnit * kUnit, kUnit);
  const std::uint64_t each = slices_of(slices_of(slice_bytes, slices_of(slice_bytes, most)), kUnit) * kUnit;
  std::vector<void *> buffers(inputs + outputs);
  check(tandem_shards_allocate(buffers.size(), each, 0, buffers.data()));
  const std::unique_ptr<void, void (*)(void *)> owner(buffers[0], tandem_shards_free);
  Column column{0, 0, std::span(buffers).first(inputs), std::span(buffers).subspan(inputs)};
  for (; column.offset < slice_bytes; column.offset += each) {
    column.bytes = std::min(each, slice_bytes - column.offset);
    run_groups(inputs, crew, [&](std::size_t first, std::size_t end) { read(column, first, end); });
    if (outputs != 0) code(column);
    run_groups(outputs, crew, [&](std::size_t first, std::size_t end) { write(column, first, end); });
  }
}

using CodecOwner = std::unique_ptr<tandem_codec, void (*)(tandem_codec *)>;

inline CodecOwner make_codec(bool is_par1, std::size_t slice_count, std::uint32_t first_exponent, std::uint32_t count) {
  auto options = base::sized<tandem_codec_options>();
  options.k = static_cast<std::uint32_t>(slice_count);
  options.m = count;
  options.matrix = is_par1 ? TANDEM_MATRIX_PAR1 : TANDEM_MATRIX_PAR2;
  options.allow_non_mds = 1;
  options.first_exponent = first_exponent;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return {codec, tandem_codec_destroy};
}

}  // namespace tandem::par2
