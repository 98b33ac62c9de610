// SPDX-License-Identifier: Apache-2.0
// Checksums: XXH3, 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::volume {

std::uint64_t hash64(const void *at, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace tandem::volume
