// SPDX-License-Identifier: Apache-2.0
#include "volume/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tandem::volume {

std::uint64_t hash64(const void *at, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(at, bytes, seed);
}

}  // namespace tandem::volume
