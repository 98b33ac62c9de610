// SPDX-License-Identifier: Apache-2.0
// Tables, elements and matrices: none of this depends on the machine.
#include <algorithm>
#include <cstring>

#include "isal/abi.hpp"
#include "isal/coding.hpp"
#include "isal/tables.hpp"

using tandem::isal::kInverses;
using tandem::isal::kProducts;
using tandem::isal::kTableBytes;
using tandem::isal::kTables;

unsigned char gf_mul(unsigned char a, unsigned char b) { return kProducts[a][b]; }

unsigned char gf_inv(unsigned char a) { return kInverses[a]; }

namespace {

void write_tables(std::size_t count, const unsigned char *coefficients, unsigned char *gftbls) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(gftbls + i * kTableBytes, &kTables[coefficients[i]], kTableBytes);
}

void write_matrix_tables(int k, int rows, const unsigned char *a, unsigned char *gftbls) {
  if (k > 0 && rows > 0) write_tables(static_cast<std::size_t>(k) * static_cast<std::size_t>(rows), a, gftbls);
}

}  // namespace

void gf_vect_mul_init(unsigned char c, unsigned char *gftbl) { write_tables(1, &c, gftbl); }

void gf_vect_mul_init_base(unsigned char c, unsigned char *gftbl) { write_tables(1, &c, gftbl); }

void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *gftbls) {
  write_matrix_tables(k, rows, a, gftbls);
}

void ec_init_tables_base(int k, int rows, unsigned char *a, unsigned char *gftbls) {
  write_matrix_tables(k, rows, a, gftbls);
}

namespace {

// m rows of k columns. The first k rows are the identity; the others are parity(row, column).
template <class Parity>
void systematic_matrix(unsigned char *a, int m, int k, Parity parity) {
  if (m <= 0 || k <= 0) return;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < k; ++column)
      *a++ = row < k ? static_cast<unsigned char>(row == column) : parity(row, column);
  }
}

}  // namespace

// parity[r][c] = (2^r)^c.
void gf_gen_rs_matrix(unsigned char *a, int m, int k) {
  systematic_matrix(a, m, k, [=](int row, int column) {
    return tandem::core::gf::power(tandem::core::gf::power(2, static_cast<unsigned>(row - k)),
                                   static_cast<unsigned>(column));
  });
}

// parity[r][c] = 1 / (r xor c), r counted from the first row of the whole matrix.
void gf_gen_cauchy1_matrix(unsigned char *a, int m, int k) {
  systematic_matrix(a, m, k, [](int row, int column) { return kInverses[static_cast<unsigned char>(row ^ column)]; });
}

// Gauss-Jordan elimination with the first possible row as pivot, as in ISA-L. So the remains of a singular matrix are
// the same too.
int gf_invert_matrix(unsigned char *in, unsigned char *out, const int n) {
  if (n <= 0) return 0;
  const auto size = static_cast<std::size_t>(n);
  std::memset(out, 0, size * size);
  for (std::size_t i = 0; i < size; ++i) out[i * size + i] = 1;

  const auto scale = [size](unsigned char *row, unsigned char factor) {
    const auto &products = kProducts[factor];
    for (std::size_t c = 0; c < size; ++c) row[c] = products[row[c]];
  };
  for (std::size_t i = 0; i < size; ++i) {
    unsigned char *const in_row = in + i * size, *const out_row = out + i * size;
    if (in_row[i] == 0) {
      std::size_t j = i + 1;
      while (j < size && in[j * size + i] == 0) ++j;
      if (j == size) return -1;
      std::swap_ranges(in_row, in_row + size, in + j * size);
      std::swap_ranges(out_row, out_row + size, out + j * size);
    }
    const unsigned char factor = kInverses[in_row[i]];
    scale(in_row, factor);
    scale(out_row, factor);
    for (std::size_t j = 0; j < size; ++j) {
      const unsigned char eliminated = in[j * size + i];
      if (j == i || eliminated == 0) continue;
      tandem::isal::multiply_add(out + j * size, eliminated, out_row, size);
      tandem::isal::multiply_add(in + j * size, eliminated, in_row, size);
    }
  }
  return 0;
}

// The newest version of the interface that this library was compared with.
unsigned isal_get_version(void) { return 2 << 16 | 32 << 8 | 1; }

const char *isal_get_version_str(void) { return "2.32.1"; }
