// SPDX-License-Identifier: Apache-2.0
#include "files/hash.hpp"

#include <atomic>

namespace tandem::files {

extern const HashFunctions hash_portable;
#ifdef TANDEM_FILES_HASH_AVX2
extern const HashFunctions hash_avx2;
#endif

namespace {

std::atomic<std::uint64_t> hashed{0};

void count(std::size_t byte_count) noexcept { hashed.fetch_add(byte_count, std::memory_order_relaxed); }

const HashFunctions &functions() {
#ifdef TANDEM_FILES_HASH_AVX2
  static const HashFunctions &chosen = __builtin_cpu_supports("avx2") ? hash_avx2 : hash_portable;
  return chosen;
#else
  return hash_portable;
#endif
}

}  // namespace

std::uint64_t hashed_bytes() noexcept { return hashed.load(std::memory_order_relaxed); }

Hash128 hash128(const void *bytes, std::size_t byte_count) {
  count(byte_count);
  std::uint64_t low_high[2];
  functions().hash128(bytes, byte_count, low_high);
  return {low_high[0], low_high[1]};
}

std::uint64_t hash64(const void *bytes, std::size_t byte_count) {
  count(byte_count);
  return functions().hash64(bytes, byte_count);
}

StreamHash::StreamHash() { functions().reset(state_); }

void StreamHash::update(const void *bytes, std::size_t byte_count) {
  if (byte_count == 0) return;
  count(byte_count);
  functions().update(state_, bytes, byte_count);
}

Hash128 StreamHash::value() const {
  std::uint64_t low_high[2];
  functions().finish(state_, low_high);
  return {low_high[0], low_high[1]};
}

}  // namespace tandem::files
