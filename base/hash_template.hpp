// SPDX-License-Identifier: Apache-2.0
// One copy of xxHash for the instruction set that the including .cpp file is compiled for. XXH_INLINE_ALL makes every
// function static: the copies cannot be merged by the linker, and libtandem needs no libxxhash.so.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.hpp"

namespace {

void hash128_here(const void *bytes, std::size_t byte_count, std::uint64_t low_high_out[2]) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, byte_count);
  low_high_out[0] = hash.low64;
  low_high_out[1] = hash.high64;
}

std::uint64_t hash64_here(const void *bytes, std::size_t byte_count, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, byte_count, seed);
}

void reset_here(void *state) { XXH3_128bits_reset(static_cast<XXH3_state_t *>(state)); }

void update_here(void *state, const void *bytes, std::size_t byte_count) {
  XXH3_128bits_update(static_cast<XXH3_state_t *>(state), bytes, byte_count);
}

void finish_here(const void *state, std::uint64_t low_high_out[2]) {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t *>(state));
  low_high_out[0] = hash.low64;
  low_high_out[1] = hash.high64;
}

static_assert(sizeof(XXH3_state_t) <= sizeof(tandem::base::StreamHash));

constexpr tandem::base::HashFunctions kFunctions = {hash128_here, hash64_here, reset_here, update_here, finish_here};

}  // namespace
