// SPDX-License-Identifier: Apache-2.0
// The checks that every call makes on its buffers before it writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "core/plan.hpp"

namespace tandem::api {

// Overlap is checked from this many total bytes up, and always in debug builds: in a shorter call the check would show
// (4.6 ns at 4+2, docs/internals/KERNELS.md).
#if defined(NDEBUG)
inline constexpr std::uint64_t kOverlapCheckBytes = 4 << 10;
#else
inline constexpr std::uint64_t kOverlapCheckBytes = 0;
#endif

// Unrolled by hand: a small call has many pointers and little else to do.
template <class Pointer>
[[gnu::always_inline]] inline bool any_null(const Pointer *pointers, std::size_t count) {
  for (std::size_t quads = count / 4; quads != 0; --quads, pointers += 4)
    if (pointers[0] == nullptr || pointers[1] == nullptr || pointers[2] == nullptr || pointers[3] == nullptr)
      return true;
  if ((count & 2) != 0 && (pointers[0] == nullptr || pointers[1] == nullptr)) return true;
  return (count & 1) != 0 && pointers[count & 2] == nullptr;
}

// A length that the plan's operator has. Throws Error with both numbers.
void check_length(const core::Plan &plan, std::uint64_t shard_bytes);

[[noreturn]] void fail_shard_bytes(std::uint64_t shard_bytes, std::uint64_t shard_count);

// shard_bytes >= 1, and shard_count shards of it fit the address space. Throws Error.
inline void check_shard_bytes(std::uint64_t shard_bytes, std::uint64_t shard_count) {
  // The addresses of a process: 2^47 bytes on x86-64, unless it asks for more (Intel, 5-Level Paging, 2017). Verify
  // checks no overlap, so this is what keeps it from cutting an impossible shard into billions of chunks.
  constexpr std::uint64_t kMostShardBytes = std::uint64_t{1} << 47;
  std::uint64_t bytes = 0;
  if (shard_bytes == 0 || shard_bytes > kMostShardBytes || __builtin_mul_overflow(shard_bytes, shard_count, &bytes) ||
      bytes > PTRDIFF_MAX) [[unlikely]]
    fail_shard_bytes(shard_bytes, shard_count);
}

// The array of m parity pointers is there. Throws Error.
inline void check_parity(void *const *parity, const core::Codec &codec) {
  if (parity == nullptr && codec.m() != 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "parity is NULL");
}

// The backend runs tasks on this kind of memory. Throws Error.
void check_reachable(const core::Backend &backend, std::int32_t memory);

// Checks the index of a data shard. Throws Error.
void check_index(std::uint32_t index, const core::Codec &codec);

[[noreturn]] void fail_null_shard(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs);

// One stripe's shard_bytes, of a length that the operator has, and its pointers in plan order: none NULL.
// Throws Error with the numbers, or naming the shard.
// has_outputs: the caller has looked at the outputs; none is NULL.
inline void check_given(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                        std::uint64_t shard_bytes, bool has_outputs = false) {
  if (plan.prepared().length_unit_bytes() != 1) [[unlikely]]
    check_length(plan, shard_bytes);
  if (any_null(inputs, plan.inputs().size()) || (!has_outputs && any_null(outputs, plan.outputs().size()))) [[unlikely]]
    fail_null_shard(plan, inputs, outputs);
}

// Only the second half of check_pointers.
void check_overlap(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                   std::uint64_t shard_bytes);

// The same as check_given, and no output on another buffer. Throws Error naming the shards.
inline void check_pointers(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                           std::uint64_t shard_bytes, bool has_outputs = false) {
  check_given(plan, inputs, outputs, shard_bytes, has_outputs);
  if (plan.mode() != core::Mode::compare &&  // which writes nothing
      shard_bytes * (plan.inputs().size() + plan.outputs().size()) >= kOverlapCheckBytes)
    check_overlap(plan, inputs, outputs, shard_bytes);
}

}  // namespace tandem::api
