// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference16.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace tandem::reference16 {
namespace {

std::uint16_t product(unsigned a, unsigned b, unsigned polynomial) {
  unsigned sum = 0;
  for (; b != 0; b >>= 1) {
    if (b & 1) sum ^= a;
    a <<= 1;
    if (a & 0x10000) a ^= polynomial;
  }
  return static_cast<std::uint16_t>(sum);
}

bool is_leopard(const std::string &preset) { return preset == "leopard16" || preset == "reed-solomon-simd"; }

// Elements and their coordinates in the Cantor basis: b_0 = 1, b_i the even solution of x^2 + x = b_(i-1).
struct Cantor {
  std::vector<std::uint16_t> element = std::vector<std::uint16_t>(65536), coordinates = element;
  Cantor() {
    std::array<std::uint16_t, 16> basis{1};
    for (unsigned i = 1; i < 16; ++i)
      for (unsigned x = 0; x < 65536; x += 2)
        if ((product(x, x, 0x1002d) ^ x) == basis[i - 1]) basis[i] = static_cast<std::uint16_t>(x);
    for (unsigned a = 0; a < 65536; ++a) {
      for (unsigned i = 0; i < 16; ++i)
        if (a >> i & 1) element[a] ^= basis[i];
      coordinates[element[a]] = static_cast<std::uint16_t>(a);
    }
  }
};

const Cantor &cantor() {
  static const Cantor tables;
  return tables;
}

std::uint16_t power(const std::string &preset, std::uint16_t base, unsigned exponent) {
  std::uint16_t result = 1;
  for (; exponent != 0; exponent >>= 1, base = multiply(preset, base, base))
    if (exponent & 1) result = multiply(preset, result, base);
  return result;
}

// Value at x of the polynomial with the roots 0 .. 2^l - 1.
std::uint16_t subspace_polynomial(const std::string &preset, unsigned l, std::uint16_t x) {
  for (; l != 0; --l) x = multiply(preset, x, x) ^ x;
  return x;
}

Rows16 leopard(const std::string &preset, unsigned k, unsigned m) {
  const unsigned a = std::bit_ceil(k), b = std::bit_ceil(m);
  const bool is_high = preset == "leopard16" || a > b || (a == b && k <= m);
  const unsigned group = is_high ? b : a;
  const auto l = static_cast<unsigned>(std::bit_width(group) - 1);
  Rows16 rows(m, std::vector<std::uint16_t>(k));
  for (unsigned r = 0; r < m; ++r) {
    for (unsigned c = 0; c < k; ++c) {
      const unsigned x = is_high ? r : group + r, y = is_high ? group + c : c, far = is_high ? y : x;
      rows[r][c] = multiply(preset, subspace_polynomial(preset, l, static_cast<std::uint16_t>(far & ~(group - 1))),
                            inverse(preset, static_cast<std::uint16_t>(x ^ y)));
    }
  }
  return rows;
}

// The Vandermonde matrix of 0, 1, 2, ... made systematic by operations on columns, then parity row 0 made ones.
Rows16 liberasurecode(const std::string &preset, unsigned k, unsigned m) {
  Rows16 all(k + m, std::vector<std::uint16_t>(k));
  for (unsigned i = 0; i < k + m; ++i)
    for (unsigned j = 0; j < k; ++j)
      all[i][j] = j == 0 ? std::uint16_t{1} : multiply(preset, all[i][j - 1], static_cast<std::uint16_t>(i));
  const auto scale_column = [&](unsigned column, std::uint16_t factor, unsigned from) {
    for (unsigned i = from; i < k + m; ++i) all[i][column] = multiply(preset, all[i][column], factor);
  };
  for (unsigned i = 0; i < k; ++i) {
    scale_column(i, inverse(preset, all[i][i]), 0);
    for (unsigned j = 0; j < k; ++j) {
      const std::uint16_t factor = all[i][j];
      if (j == i || factor == 0) continue;
      for (auto &row : all) row[j] ^= multiply(preset, factor, row[i]);
    }
  }
  for (unsigned j = 0; j < k && m != 0; ++j) scale_column(j, inverse(preset, all[k][j]), k);
  return {all.begin() + k, all.end()};
}

Rows16 par2(const std::string &preset, unsigned k, unsigned m) {
  Rows16 rows(m, std::vector<std::uint16_t>(k));
  unsigned n = 0;
  for (unsigned c = 0; c < k; ++c) {
    for (++n; n % 3 == 0 || n % 5 == 0 || n % 17 == 0 || n % 257 == 0;) ++n;
    for (unsigned r = 0; r < m; ++r) rows[r][c] = power(preset, power(preset, 2, n), r);
  }
  return rows;
}

}  // namespace

std::uint16_t multiply(const std::string &preset, std::uint16_t a, std::uint16_t b) {
  if (!is_leopard(preset)) return product(a, b, 0x1100b);
  return cantor().coordinates[product(cantor().element[a], cantor().element[b], 0x1002d)];
}

std::uint16_t inverse(const std::string &preset, std::uint16_t a) { return power(preset, a, 65534); }

Rows16 parity_rows(const std::string &preset, unsigned k, unsigned m) {
  if (is_leopard(preset)) return leopard(preset, k, m);
  return preset == "par2" ? par2(preset, k, m) : liberasurecode(preset, k, m);
}

std::vector<Bytes> apply(const std::string &preset, const Rows16 &rows, const std::vector<Bytes> &shards) {
  const std::size_t bytes = shards.front().size();
  std::vector<Bytes> result(rows.size(), Bytes(bytes));
  for (std::size_t block = 0; block < bytes; block += 64) {
    const std::size_t half = std::min<std::size_t>(64, bytes - block) / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t low = is_leopard(preset) ? block + i : block + 2 * i;
      const std::size_t high = is_leopard(preset) ? low + half : low + 1;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        unsigned sum = 0;
        for (std::size_t c = 0; c < shards.size(); ++c)
          sum ^= multiply(preset, rows[r][c], static_cast<std::uint16_t>(shards[c][low] | shards[c][high] << 8));
        result[r][low] = static_cast<std::uint8_t>(sum);
        result[r][high] = static_cast<std::uint8_t>(sum >> 8);
      }
    }
  }
  return result;
}

}  // namespace tandem::reference16
