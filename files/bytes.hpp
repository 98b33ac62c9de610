// SPDX-License-Identifier: Apache-2.0
// Little-endian numbers in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::files {

template <class T>
void store(std::byte *at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    at[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
}

template <class T>
T load(const std::byte *at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace tandem::files
