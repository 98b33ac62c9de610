// SPDX-License-Identifier: Apache-2.0
// The right result of a kernel or backend: products of the slow reference, in tables that are made once, so that suites
// with hundreds of thousands of cases stay short.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/reference.hpp"

namespace tandem::test {

using Bytes = std::vector<std::uint8_t>;
using Shards = std::vector<Bytes>;

inline const std::array<std::array<std::uint8_t, 256>, 256> &products() {
  static const auto table = [] {
    std::array<std::array<std::uint8_t, 256>, 256> all{};
    for (unsigned a = 0; a < 256; ++a)
      for (unsigned b = 0; b < 256; ++b)
        all[a][b] = reference::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b));
    return all;
  }();
  return table;
}

// The inner loop. Not instrumented: it is most of a suite's time, and under the thread sanitizer twenty times as much.
__attribute__((no_sanitize("thread"))) inline void add_product(const std::uint8_t *product, const std::uint8_t *input,
                                                               std::size_t bytes, std::uint8_t *sum) {
  for (std::size_t i = 0; i < bytes; ++i) sum[i] ^= product[input[i]];
}

// out[r] = XOR over c of coefficients[r * columns + c] * inputs[c][0 .. bytes).
inline Shards expected(const std::uint8_t *coefficients, std::size_t rows, std::size_t columns,
                       const std::uint8_t *const *inputs, std::size_t bytes) {
  const auto &table = products();
  Shards out(rows, Bytes(bytes));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::uint8_t coefficient = coefficients[r * columns + c];
      if (coefficient == 0) continue;
      add_product(table[coefficient].data(), inputs[c], bytes, out[r].data());
    }
  }
  return out;
}

}  // namespace tandem::test
