// What every call checks about its buffers before the first byte is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "core/plan.hpp"

namespace tandem::api {

// Overlap is looked for from this many total bytes up, and always in debug builds.
#if defined(NDEBUG)
inline constexpr std::uint64_t kOverlapCheckBytes = 64 << 10;
#else
inline constexpr std::uint64_t kOverlapCheckBytes = 0;
#endif

// Most calls are small and have no NULL: no branch a pointer.
template <class Pointer>
bool any_null(const Pointer *pointers, std::size_t count) {
  bool null = false;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < count; ++i) null |= pointers[i] == nullptr;
  return null;
}

// A multiple of what the plan's operator can be cut at. Throws Error with both numbers.
void check_granularity(const core::Plan &plan, std::uint64_t shard_bytes);

// shard_bytes >= 1, and shard_count shards of it fit the address space. Throws Error.
void check_shard_bytes(std::uint64_t shard_bytes, std::uint64_t shard_count);

// The array of m parity pointers is there. Throws Error.
inline void check_parity(void *const *parity, const core::Codec &codec) {
  if (parity == nullptr && codec.m() != 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "parity is NULL");
}

// Of a data shard. Throws Error.
void check_index(std::uint32_t index, const core::Codec &codec);

// One stripe's shard_bytes, which the operator's granularity must divide, and its pointers in plan order: none NULL.
// Throws Error with the numbers, or naming the shard.
void check_given(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                 std::uint64_t shard_bytes);

// The same, and no output on another buffer. Throws Error naming the shards.
void check_pointers(const core::Plan &plan, const std::byte *const *inputs, std::byte *const *outputs,
                    std::uint64_t shard_bytes);

}  // namespace tandem::api
