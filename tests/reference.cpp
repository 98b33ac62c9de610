// SPDX-License-Identifier: Apache-2.0
#include "tests/reference.hpp"

#include <bit>
#include <stdexcept>
#include <utility>

namespace tandem::reference {
namespace {

std::uint8_t divide(std::uint8_t a, std::uint8_t b) { return multiply(a, inverse(b)); }

std::uint8_t two_to(unsigned exponent) { return power(2, exponent); }

template <class Cell>
Rows fill(std::size_t rows, std::size_t columns, Cell cell) {
  Rows matrix(rows, Bytes(columns));
  for (unsigned r = 0; r < rows; ++r) {
    for (unsigned c = 0; c < columns; ++c) matrix[r][c] = cell(r, c);
  }
  return matrix;
}

// The rows from k on of a (k + m) x k matrix, after column operations that turn the first k into the identity.
Rows systematic(const Rows &generator, unsigned k) {
  const Rows top(generator.begin(), generator.begin() + k);
  const Rows bottom(generator.begin() + k, generator.end());
  return multiply(bottom, invert(top));
}

template <class Point>
Rows vandermonde(unsigned k, unsigned m, Point point) {
  return systematic(fill(k + m, k, [&](unsigned i, unsigned c) { return power(point(i), c); }), k);
}

unsigned bit_matrix_ones(std::uint8_t element) {
  unsigned ones = 0;
  for (unsigned i = 0; i < 8; ++i) ones += static_cast<unsigned>(std::popcount(multiply(element, two_to(i))));
  return ones;
}

unsigned bit_matrix_ones(const Bytes &row) {
  unsigned ones = 0;
  for (const std::uint8_t cell : row) ones += bit_matrix_ones(cell);
  return ones;
}

Rows jerasure_vandermonde(unsigned k, unsigned m) {
  Rows generator = fill(k + m, k, [&](unsigned i, unsigned c) -> std::uint8_t {
    if (i == 0) return c == 0;
    if (i == k + m - 1) return c == k - 1;
    return power(static_cast<std::uint8_t>(i), c);
  });
  Rows parity = systematic(generator, k);
  for (unsigned c = 0; c < k && m > 0; ++c) {
    const std::uint8_t divisor = parity[0][c];
    for (Bytes &row : parity) row[c] = divide(row[c], divisor);
  }
  for (Bytes &row : parity) {
    const std::uint8_t divisor = row[0];
    for (std::uint8_t &cell : row) cell = divide(cell, divisor);
  }
  return parity;
}

Rows jerasure_cauchy_good(unsigned k, unsigned m) {
  if (m == 2) {
    Bytes order;
    for (unsigned ones = 0; ones <= 64; ++ones) {
      for (unsigned element = 1; element < 256; ++element) {
        const auto byte = static_cast<std::uint8_t>(element);
        if (bit_matrix_ones(byte) == ones) order.push_back(byte);
      }
    }
    return fill(2, k, [&](unsigned r, unsigned c) { return r == 0 ? std::uint8_t{1} : order[c]; });
  }
  Rows matrix = parity_rows("jerasure-cauchy-orig", k, m);
  for (unsigned c = 0; c < k && m > 0; ++c) {
    const std::uint8_t divisor = matrix[0][c];
    for (Bytes &row : matrix) row[c] = divide(row[c], divisor);
  }
  for (unsigned r = 1; r < m; ++r) {
    Bytes best = matrix[r];
    for (const std::uint8_t divisor : matrix[r]) {
      Bytes candidate = matrix[r];
      for (std::uint8_t &cell : candidate) cell = divide(cell, divisor);
      if (bit_matrix_ones(candidate) < bit_matrix_ones(best)) best = candidate;
    }
    matrix[r] = best;
  }
  return matrix;
}

// Parity c of x^(m+c) by long division by the product of (x - 2^i).
Rows hdfs_rs_legacy(unsigned k, unsigned m) {
  Bytes divisor{1};  // highest power first
  for (unsigned i = 0; i < m; ++i) {
    Bytes next(divisor.size() + 1);
    for (std::size_t j = 0; j < divisor.size(); ++j) {
      next[j] ^= divisor[j];
      next[j + 1] ^= multiply(divisor[j], two_to(i));
    }
    divisor = next;
  }
  Rows parity(m, Bytes(k));
  for (unsigned c = 0; c < k; ++c) {
    Bytes dividend(m + c + 1);
    dividend[0] = 1;
    for (unsigned i = 0; i <= c; ++i) {
      const std::uint8_t quotient = dividend[i];
      for (unsigned j = 0; j <= m; ++j) dividend[i + j] ^= multiply(quotient, divisor[j]);
    }
    for (unsigned r = 0; r < m; ++r) parity[r][c] = dividend[dividend.size() - 1 - r];
  }
  return parity;
}

}  // namespace

std::uint8_t power(std::uint8_t base, unsigned exponent) {
  std::uint8_t result = 1;
  for (unsigned i = 0; i < exponent; ++i) result = multiply(result, base);
  return result;
}

std::uint8_t inverse(std::uint8_t a) {
  for (unsigned b = 1; b < 256; ++b) {
    if (multiply(a, static_cast<std::uint8_t>(b)) == 1) return static_cast<std::uint8_t>(b);
  }
  return 0;
}

Rows apply(const std::uint8_t *coefficients, std::size_t rows, std::size_t columns, const Rows &inputs,
           std::size_t shard_bytes) {
  Rows outputs(rows, Bytes(shard_bytes));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t i = 0; i < shard_bytes; ++i) {
        outputs[r][i] ^= multiply(coefficients[r * columns + c], inputs[c][i]);
      }
    }
  }
  return outputs;
}

Rows multiply(const Rows &a, const Rows &b) {
  Rows product(a.size(), Bytes(b.empty() ? 0 : b[0].size()));
  for (std::size_t r = 0; r < a.size(); ++r) {
    for (std::size_t i = 0; i < b.size(); ++i) {
      for (std::size_t c = 0; c < b[i].size(); ++c) product[r][c] ^= multiply(a[r][i], b[i][c]);
    }
  }
  return product;
}

std::size_t rank(Rows matrix) {
  std::size_t found = 0;
  for (std::size_t c = 0; !matrix.empty() && c < matrix[0].size(); ++c) {
    std::size_t pivot = found;
    while (pivot < matrix.size() && matrix[pivot][c] == 0) ++pivot;
    if (pivot == matrix.size()) continue;
    std::swap(matrix[pivot], matrix[found]);
    for (std::size_t r = found + 1; r < matrix.size(); ++r) {
      const std::uint8_t factor = divide(matrix[r][c], matrix[found][c]);
      for (std::size_t i = 0; i < matrix[r].size(); ++i) matrix[r][i] ^= multiply(factor, matrix[found][i]);
    }
    ++found;
  }
  return found;
}

Rows invert(const Rows &matrix) {
  const std::size_t size = matrix.size();
  Rows work = matrix;
  for (std::size_t r = 0; r < size; ++r) {
    work[r].resize(2 * size);
    work[r][size + r] = 1;
  }
  for (std::size_t c = 0; c < size; ++c) {
    std::size_t pivot = c;
    while (pivot < size && work[pivot][c] == 0) ++pivot;
    if (pivot == size) return {};
    std::swap(work[pivot], work[c]);
    const std::uint8_t factor = inverse(work[c][c]);
    for (std::uint8_t &cell : work[c]) cell = multiply(cell, factor);
    for (std::size_t r = 0; r < size; ++r) {
      const std::uint8_t cell = work[r][c];
      if (r == c || cell == 0) continue;
      for (std::size_t i = 0; i < 2 * size; ++i) work[r][i] ^= multiply(cell, work[c][i]);
    }
  }
  for (Bytes &row : work) row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(size));
  return work;
}

Rows parity_rows(const std::string &preset, unsigned k, unsigned m) {
  if (preset == "isal-cauchy") {
    return fill(m, k, [&](unsigned r, unsigned c) { return inverse(static_cast<std::uint8_t>((k + r) ^ c)); });
  }
  if (preset == "isal-vandermonde") return fill(m, k, [](unsigned r, unsigned c) { return power(two_to(r), c); });
  if (preset == "backblaze") return vandermonde(k, m, [](unsigned i) { return static_cast<std::uint8_t>(i); });
  if (preset == "zfec") {
    return vandermonde(k, m, [](unsigned i) { return i == 0 ? std::uint8_t{0} : two_to(i - 1); });
  }
  if (preset == "liberasurecode-isal-vand-inv") {
    return vandermonde(k, m, [](unsigned i) { return two_to(i + 1); });
  }
  if (preset == "jerasure-vandermonde") return jerasure_vandermonde(k, m);
  if (preset == "jerasure-cauchy-orig") {
    return fill(m, k, [&](unsigned r, unsigned c) { return inverse(static_cast<std::uint8_t>(r ^ (m + c))); });
  }
  if (preset == "jerasure-cauchy-good") return jerasure_cauchy_good(k, m);
  if (preset == "raid6") return fill(m, k, [](unsigned r, unsigned c) { return power(two_to(c), r); });
  if (preset == "zfs-raidz") return fill(m, k, [&](unsigned r, unsigned c) { return power(two_to(r), k - 1 - c); });
  if (preset == "snapraid-cauchy") {
    return fill(m, k, [](unsigned r, unsigned c) -> std::uint8_t {
      if (r == 0) return 1;
      if (r == 1) return two_to(c);
      const auto cell = [&](unsigned column) {
        return inverse(static_cast<std::uint8_t>(inverse(two_to(column)) ^ two_to(r - 1)));
      };
      return divide(cell(c), cell(0));
    });
  }
  if (preset == "snapraid-vandermonde") {
    return fill(m, k, [](unsigned r, unsigned c) {
      return r == 0 ? std::uint8_t{1} : r == 1 ? two_to(c) : inverse(two_to(c));
    });
  }
  if (preset == "par1")
    return fill(m, k, [](unsigned r, unsigned c) { return power(static_cast<std::uint8_t>(c + 1), r); });
  if (preset == "hdfs-rs-legacy") return hdfs_rs_legacy(k, m);
  throw std::invalid_argument("no reference for matrix " + preset);
}

unsigned multiply(unsigned word_bits, unsigned a, unsigned b) {
  const unsigned polynomial = word_bits == 4 ? 0x13 : word_bits == 8 ? 0x11d : 0x1100b;
  unsigned product = 0;
  for (; b != 0; b >>= 1) {
    if (b & 1) product ^= a;
    a <<= 1;
    if (a >> word_bits) a ^= polynomial;
  }
  return product;
}

// a^(2^w - 2).
unsigned inverse(unsigned word_bits, unsigned a) {
  unsigned result = 1;
  for (unsigned i = 1; i < word_bits; ++i) {
    a = multiply(word_bits, a, a);
    result = multiply(word_bits, result, a);
  }
  return result;
}

namespace {

unsigned ones_in_bit_matrix(unsigned word_bits, unsigned element) {
  unsigned ones = 0;
  for (unsigned i = 0; i < word_bits; ++i)
    ones += static_cast<unsigned>(std::popcount(multiply(word_bits, element, 1u << i)));
  return ones;
}

unsigned ones_in_bit_matrix(unsigned word_bits, const std::vector<unsigned> &row) {
  unsigned ones = 0;
  for (const unsigned cell : row) ones += ones_in_bit_matrix(word_bits, cell);
  return ones;
}

}  // namespace

Numbers jerasure_rows(const std::string &preset, unsigned word_bits, unsigned k, unsigned m) {
  Numbers matrix(m, std::vector<unsigned>(k));
  if (preset == "jerasure-cauchy-good" && m == 2 && word_bits != 16) {
    std::vector<unsigned> order;
    for (unsigned ones = 0; ones <= word_bits * word_bits; ++ones)
      for (unsigned element = 1; element < 1u << word_bits; ++element)
        if (ones_in_bit_matrix(word_bits, element) == ones) order.push_back(element);
    for (unsigned c = 0; c < k; ++c) matrix[0][c] = 1, matrix[1][c] = order[c];
    return matrix;
  }
  for (unsigned r = 0; r < m; ++r)
    for (unsigned c = 0; c < k; ++c) matrix[r][c] = inverse(word_bits, r ^ (m + c));
  if (preset == "jerasure-cauchy-orig" || m == 0) return matrix;
  for (unsigned c = 0; c < k; ++c) {
    const unsigned factor = inverse(word_bits, matrix[0][c]);
    for (auto &row : matrix) row[c] = multiply(word_bits, row[c], factor);
  }
  for (unsigned r = 1; r < m; ++r) {
    std::vector<unsigned> best = matrix[r];
    for (const unsigned divisor : matrix[r]) {
      std::vector<unsigned> candidate = matrix[r];
      const unsigned factor = inverse(word_bits, divisor);
      for (unsigned &cell : candidate) cell = multiply(word_bits, cell, factor);
      if (ones_in_bit_matrix(word_bits, candidate) < ones_in_bit_matrix(word_bits, best)) best = candidate;
    }
    matrix[r] = best;
  }
  return matrix;
}

std::size_t packet_rank(unsigned word_bits, Numbers matrix) {
  std::size_t found = 0;
  for (std::size_t c = 0; !matrix.empty() && c < matrix[0].size(); ++c) {
    std::size_t pivot = found;
    while (pivot < matrix.size() && matrix[pivot][c] == 0) ++pivot;
    if (pivot == matrix.size()) continue;
    std::swap(matrix[pivot], matrix[found]);
    const unsigned inverse_of_pivot = inverse(word_bits, matrix[found][c]);
    for (std::size_t r = found + 1; r < matrix.size(); ++r) {
      const unsigned factor = multiply(word_bits, matrix[r][c], inverse_of_pivot);
      for (std::size_t i = 0; i < matrix[r].size(); ++i) matrix[r][i] ^= multiply(word_bits, factor, matrix[found][i]);
    }
    ++found;
  }
  return found;
}

Rows apply_packets(unsigned word_bits, std::size_t packet_bytes, const Numbers &rows, const Rows &shards) {
  const std::size_t shard_bytes = shards.empty() ? 0 : shards[0].size();
  Rows outputs(rows.size(), Bytes(shard_bytes));
  for (std::size_t group = 0; group < shard_bytes; group += word_bits * packet_bytes) {
    for (std::size_t j = 0; j < packet_bytes; ++j) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        std::vector<unsigned> elements;
        for (const Bytes &shard : shards) {
          unsigned element = 0;
          for (unsigned i = 0; i < word_bits; ++i) element |= (shard[group + i * packet_bytes + j] >> bit & 1u) << i;
          elements.push_back(element);
        }
        for (std::size_t r = 0; r < rows.size(); ++r) {
          unsigned sum = 0;
          for (std::size_t c = 0; c < shards.size(); ++c) sum ^= multiply(word_bits, rows[r][c], elements[c]);
          for (unsigned i = 0; i < word_bits; ++i)
            outputs[r][group + i * packet_bytes + j] =
                static_cast<std::uint8_t>(outputs[r][group + i * packet_bytes + j] | (sum >> i & 1u) << bit);
        }
      }
    }
  }
  return outputs;
}

}  // namespace tandem::reference
