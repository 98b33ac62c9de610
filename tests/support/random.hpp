// SPDX-License-Identifier: Apache-2.0
// Random numbers and paint for tests. Each test prints or fixes the seed that it uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

namespace tandem::test {

using base::Random;

// Paint with a period that no block size divides, so that swapped or repeated blocks show.
inline void paint(void *bytes, std::size_t count, unsigned shift = 0) {
  auto *out = static_cast<std::uint8_t *>(bytes);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>((i + shift) % 251);
}

}  // namespace tandem::test
