// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backend: whole cache lines, pointers before an array, and places where two ranges differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/rounding.hpp"
#include "core/backend.hpp"

namespace tandem::cpu {

inline constexpr std::size_t kCacheLine = 64;

struct AlignedFree {
  void operator()(std::byte *p) const noexcept { ::operator delete (p, std::align_val_t{kCacheLine}); }
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedFree>;

// Throws std::bad_alloc.
inline AlignedMemory aligned_memory(std::size_t bytes) {
  return AlignedMemory(static_cast<std::byte *>(::operator new (bytes, std::align_val_t{kCacheLine})));
}

// To whole cache lines.
constexpr std::size_t rounded_up(std::size_t bytes) { return base::round_up(bytes, kCacheLine); }

// Scratch memory of the calling thread, aligned to a cache line: for one call of a kernel. The thread keeps it until it
// ends. If there is no memory for more, it keeps what it has, and nullptr is returned.
std::byte *thread_scratch(std::size_t bytes) noexcept;

// A pointer such that `offset_bytes` lead to `to`. Computed as a number, because it points to nothing.
inline std::uint8_t *moved(std::uint8_t *to, std::size_t offset_bytes) noexcept {
  return reinterpret_cast<std::uint8_t *>(reinterpret_cast<std::uintptr_t>(to) - offset_bytes);
}

// Where `stored` differs from `right`. Both are `bytes` long and begin at offset `at` of their shard.
inline void merge_differences(const std::uint8_t *stored, const std::uint8_t *right, std::size_t bytes,
                              std::uint64_t at, core::Mismatch *found) {
  if (std::memcmp(stored, right, bytes) == 0) return;
  std::size_t i = 0;
  while (stored[i] == right[i]) ++i;
  core::Mismatch part;
  part.first_bytes = at + i;
  constexpr std::size_t kLanes = 32, kMostSteps = 255;  // lanes of bytes, so that compilers use vectors
  while (bytes - i >= kLanes) {
    std::uint8_t lanes[kLanes] = {};
    for (std::size_t step = 0; step < kMostSteps && bytes - i >= kLanes; ++step, i += kLanes)
      for (std::size_t j = 0; j < kLanes; ++j)
        lanes[j] = static_cast<std::uint8_t>(lanes[j] + (stored[i + j] != right[i + j]));
    for (const std::uint8_t lane : lanes) part.byte_count += lane;
  }
  for (; i < bytes; ++i) part.byte_count += stored[i] != right[i];
  found->merge(part);
}

// Recomputes the outputs of `call`, which it changes, tile by tile, and records where the stored ones differ. computed:
// call.rows tiles of tile_bytes each. outputs: as many pointers. apply: runs a call on one tile.
template <class Call, class Apply>
void compare_tiles(Call &call, std::size_t tile_bytes, std::uint8_t *computed, std::uint8_t **outputs,
                   core::Mismatch *found, const Apply &apply) {
  std::uint8_t *const *const stored = call.outputs;
  call.outputs = outputs;
  const std::size_t end = call.offset_bytes + call.length_bytes;
  for (; call.offset_bytes < end; call.offset_bytes += call.length_bytes) {
    call.length_bytes = std::min(tile_bytes, end - call.offset_bytes);
    // The kernel adds the offset to inputs and outputs alike.
    for (std::uint32_t r = 0; r < call.rows; ++r) outputs[r] = moved(computed + r * tile_bytes, call.offset_bytes);
    apply(call);
    for (std::uint32_t r = 0; r < call.rows; ++r)
      merge_differences(stored[r] + call.offset_bytes, computed + r * tile_bytes, call.length_bytes, call.offset_bytes,
                        &found[r]);
  }
}

}  // namespace tandem::cpu
