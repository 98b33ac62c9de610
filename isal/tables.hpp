// SPDX-License-Identifier: Apache-2.0
// Products in GF(2^8), computed by the compiler: plain look-ups, ready before any constructor runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/gf.hpp"
#include "cpu/kernels/kernel.hpp"

namespace tandem::isal {

inline constexpr std::size_t kTableBytes = cpu::kNibbleTableBytes;  // of one coefficient in `gftbls`

using Table = std::array<std::uint8_t, kTableBytes>;

// kProducts[a][b] = a * b.
inline constexpr auto kProducts = [] {
  std::array<std::array<std::uint8_t, 256>, 256> products{};
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b)
      products[a][b] = core::gf::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b));
  }
  return products;
}();

inline constexpr auto kInverses = [] {
  std::array<std::uint8_t, 256> inverses{};
  for (unsigned a = 0; a < 256; ++a) inverses[a] = core::gf::inverse(static_cast<std::uint8_t>(a));
  return inverses;
}();

// The table that gf_vect_mul_init writes for each coefficient.
inline constexpr auto kTables = [] {
  std::array<Table, 256> tables{};
  for (unsigned c = 0; c < 256; ++c) {
    for (unsigned i = 0; i < 16; ++i) {
      tables[c][i] = kProducts[c][i];
      tables[c][16 + i] = kProducts[c][i << 4];
    }
  }
  return tables;
}();

// The coefficient of a table in `gftbls`.
inline std::uint8_t coefficient_of(const std::uint8_t *table) { return table[1]; }

}  // namespace tandem::isal
