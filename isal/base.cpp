// SPDX-License-Identifier: Apache-2.0
// The _base functions: byte by byte, from the coefficient alone. As in ISA-L, the other bytes of a table are not read.
#include <cstddef>

#include "isal/abi.hpp"
#include "isal/tables.hpp"

using tandem::isal::coefficient_of;
using tandem::isal::kProducts;
using tandem::isal::kTableBytes;

void gf_vect_mad_base(int len, int vec, int vec_i, unsigned char *gftbls, unsigned char *src, unsigned char *dest) {
  if (len <= 0 || vec_i < 0 || vec_i >= vec) return;
  const auto &products = kProducts[coefficient_of(gftbls + static_cast<std::size_t>(vec_i) * kTableBytes)];
  for (int i = 0; i < len; ++i) dest[i] ^= products[src[i]];
}

void gf_vect_dot_prod_base(int len, int vlen, unsigned char *gftbls, unsigned char **src, unsigned char *dest) {
  if (vlen <= 0) return;
  for (int i = 0; i < len; ++i) {
    unsigned char sum = 0;
    for (int c = 0; c < vlen; ++c)
      sum ^= kProducts[coefficient_of(gftbls + static_cast<std::size_t>(c) * kTableBytes)][src[c][i]];
    dest[i] = sum;
  }
}

void ec_encode_data_base(int len, int k, int rows, unsigned char *gftbls, unsigned char **data,
                         unsigned char **coding) {
  if (len <= 0 || k <= 0) return;
  for (int r = 0; r < rows; ++r, gftbls += static_cast<std::size_t>(k) * kTableBytes)
    gf_vect_dot_prod_base(len, k, gftbls, data, coding[r]);
}

void ec_encode_data_update_base(int len, int k, int rows, int vec_i, unsigned char *gftbls, unsigned char *data,
                                unsigned char **coding) {
  if (len <= 0 || k <= 0) return;
  for (int r = 0; r < rows; ++r, gftbls += static_cast<std::size_t>(k) * kTableBytes)
    gf_vect_mad_base(len, k, vec_i, gftbls, data, coding[r]);
}

int gf_vect_mul_base(int len, unsigned char *gftbl, unsigned char *src, unsigned char *dest) {
  if (len % 32 != 0) return -1;
  if (len <= 0) return 0;
  const auto &products = kProducts[coefficient_of(gftbl)];
  for (int i = 0; i < len; ++i) dest[i] = products[src[i]];
  return 0;
}
