// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <atomic>

namespace tandem::base {

extern const HashFunctions hash_portable;
#ifdef TANDEM_BASE_HASH_AVX2
extern const HashFunctions hash_avx2;
#endif

namespace {

std::atomic<std::uint64_t> hashed{0};

void count_hashed(std::size_t byte_count) noexcept { hashed.fetch_add(byte_count, std::memory_order_relaxed); }

const HashFunctions &hash_functions() {
#ifdef TANDEM_BASE_HASH_AVX2
  static const HashFunctions &chosen = __builtin_cpu_supports("avx2") ? hash_avx2 : hash_portable;
  return chosen;
#else
  return hash_portable;
#endif
}

}  // namespace

std::uint64_t hashed_bytes() noexcept { return hashed.load(std::memory_order_relaxed); }

Hash128 hash128(const void *bytes, std::size_t byte_count) {
  count_hashed(byte_count);
  std::uint64_t low_high[2];
  hash_functions().hash128(bytes, byte_count, low_high);
  return {low_high[0], low_high[1]};
}

// Not counted: threads that hash small blocks would compete for the count.
std::uint64_t hash64(const void *bytes, std::size_t byte_count, std::uint64_t seed) {
  return hash_functions().hash64(bytes, byte_count, seed);
}

std::array<std::uint8_t, 16> printed_order(const Hash128 &hash) {
  std::array<std::uint8_t, 16> bytes;
  for (unsigned i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(hash.high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<std::uint8_t>(hash.low >> (56 - 8 * i));
  }
  return bytes;
}

StreamHash::StreamHash() { hash_functions().reset(state_); }

void StreamHash::update(const void *bytes, std::size_t byte_count) {
  if (byte_count == 0) return;
  count_hashed(byte_count);
  hash_functions().update(state_, bytes, byte_count);
}

Hash128 StreamHash::value() const {
  std::uint64_t low_high[2];
  hash_functions().finish(state_, low_high);
  return {low_high[0], low_high[1]};
}

}  // namespace tandem::base
