// SPDX-License-Identifier: Apache-2.0
// XXH3 (64 and 128 bits) from xxHash. It runs at memory speed (AVX2: 48 GB/s in cache on one core, SSE2: 20), so
// checking every byte costs a few percent of reading it. It is well maintained, and its XXH3 output has been frozen
// since 0.8.0. It is not a cryptographic hash: it finds accidents, not attackers. BLAKE3 would find attackers too, but
// is several times slower per core. And an attacker that can change the shards can also change a digest beside them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem::base {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128 &) const = default;
};

// One compilation of xxHash for one instruction set (hash_portable.cpp, hash_avx2.cpp).
struct HashFunctions {
  void (*hash128)(const void *bytes, std::size_t byte_count, std::uint64_t low_high_out[2]);
  std::uint64_t (*hash64)(const void *bytes, std::size_t byte_count, std::uint64_t seed);
  void (*reset)(void *state);
  void (*update)(void *state, const void *bytes, std::size_t byte_count);
  void (*finish)(const void *state, std::uint64_t low_high_out[2]);
};

Hash128 hash128(const void *bytes, std::size_t byte_count);
std::uint64_t hash64(const void *bytes, std::size_t byte_count, std::uint64_t seed = 0);

// As `xxhsum -H128` prints it, xxHash's canonical form: high half first, big-endian.
std::array<std::uint8_t, 16> printed_order(const Hash128 &hash);

// Bytes of which hash128 and StreamHash have made hashes so far, in this process. Tests check that each byte of content
// is hashed once.
std::uint64_t hashed_bytes() noexcept;

// XXH3-128 of a stream of bytes.
class StreamHash {
 public:
  StreamHash();
  void update(const void *bytes, std::size_t byte_count);
  Hash128 value() const;

 private:
  alignas(64) std::byte state_[768];  // XXH3_state_t: 576 bytes in xxHash 0.8; asserted where it is known
};

}  // namespace tandem::base
