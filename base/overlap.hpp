// SPDX-License-Identifier: Apache-2.0
// Does any output overlap another buffer?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::base {

// Whether any of the outputs overlaps an input or another output; all have `bytes` bytes, at least 1. For few buffers:
// unless they lie in the usual order, it compares all pairs.
bool any_overlap(std::span<const std::byte *const> inputs, std::span<std::byte *const> outputs,
                 std::size_t bytes) noexcept;

struct Extent {
  const std::byte *begin;
  std::size_t bytes;
  bool is_output;
  std::uint16_t index;  // for the message
};

struct Overlap {
  std::uint16_t output, other;  // indices of the two
  bool other_is_output;
};

// Finds one output that overlaps an input or another output; inputs may overlap each other. Sorts `extents`.
// Cost n log n. Returns whether there is one.
bool find_overlap(std::span<Extent> extents, Overlap *found);

}  // namespace tandem::base
