// SPDX-License-Identifier: Apache-2.0
// The functions that this library exports: the names, types and meaning of ISA-L's public headers (erasure_code.h,
// gf_vect_mul.h, raid.h, isal_api.h of versions 2.30 to 2.32), as far as they are the same on every architecture.
// exports.map lists them again for the linker; scripts/check-exports compares the two.
//
// For all of them: bytes are elements of GF(2^8) with polynomial 0x11d. `gftbls` holds 32 bytes for each coefficient,
// row by row: its products with 0..15, then with 0x00, 0x10, .. 0xf0 (the layout of version 2.30 and of the _base
// functions of all versions). No function allocates, locks or starts anything. An output may be an input, at the same
// address, and must not overlap inputs otherwise. With a count or length below 1, or the index of a missing source, a
// function does nothing.
#pragma once

#define TANDEM_ISAL_API extern "C" __attribute__((visibility("default")))

// ---- tables and arithmetic

TANDEM_ISAL_API unsigned char gf_mul(unsigned char a, unsigned char b);
TANDEM_ISAL_API unsigned char gf_inv(unsigned char a);  // gf_inv(0) = 0
TANDEM_ISAL_API void gf_vect_mul_init(unsigned char c, unsigned char *gftbl);
TANDEM_ISAL_API void gf_vect_mul_init_base(unsigned char c, unsigned char *gftbl);
// a: rows x k coefficients, row-major; gftbls: 32 * k * rows bytes, written.
TANDEM_ISAL_API void ec_init_tables(int k, int rows, unsigned char *a, unsigned char *gftbls);
TANDEM_ISAL_API void ec_init_tables_base(int k, int rows, unsigned char *a, unsigned char *gftbls);

// ---- matrices of m rows in all (k data, m - k parity)

TANDEM_ISAL_API void gf_gen_rs_matrix(unsigned char *a, int m, int k);
TANDEM_ISAL_API void gf_gen_cauchy1_matrix(unsigned char *a, int m, int k);
// n x n; destroys `in`. 0, or -1 if it is singular.
TANDEM_ISAL_API int gf_invert_matrix(unsigned char *in, unsigned char *out, const int n);

// ---- coding; `len` bytes of every shard, any alignment

// coding[r] = sum over c of coefficient (r, c) * data[c].
TANDEM_ISAL_API void ec_encode_data(int len, int k, int rows, unsigned char *gftbls, unsigned char **data,
                                    unsigned char **coding);
TANDEM_ISAL_API void ec_encode_data_base(int len, int k, int rows, unsigned char *gftbls, unsigned char **data,
                                         unsigned char **coding);
// coding[r] += coefficient (r, vec_i) * data.
TANDEM_ISAL_API void ec_encode_data_update(int len, int k, int rows, int vec_i, unsigned char *gftbls,
                                           unsigned char *data, unsigned char **coding);
TANDEM_ISAL_API void ec_encode_data_update_base(int len, int k, int rows, int vec_i, unsigned char *gftbls,
                                                unsigned char *data, unsigned char **coding);
// One row of the two above.
TANDEM_ISAL_API void gf_vect_dot_prod(int len, int vlen, unsigned char *gftbls, unsigned char **src,
                                      unsigned char *dest);
TANDEM_ISAL_API void gf_vect_dot_prod_base(int len, int vlen, unsigned char *gftbls, unsigned char **src,
                                           unsigned char *dest);
TANDEM_ISAL_API void gf_vect_mad(int len, int vec, int vec_i, unsigned char *gftbls, unsigned char *src,
                                 unsigned char *dest);
TANDEM_ISAL_API void gf_vect_mad_base(int len, int vec, int vec_i, unsigned char *gftbls, unsigned char *src,
                                      unsigned char *dest);
// dest = coefficient * src. 0, or 1 (_base: -1) if len is no multiple of 32.
TANDEM_ISAL_API int gf_vect_mul(int len, unsigned char *gftbl, void *src, void *dest);
TANDEM_ISAL_API int gf_vect_mul_base(int len, unsigned char *gftbl, unsigned char *src, unsigned char *dest);

// ---- RAID; `array` has `vects` pointers. The last one (xor) or two (p, q) are computed from the others

// 0, or 1: fewer than 3 (xor) or 4 (pq) vectors; for pq_gen also len no multiple of 32 (_base: of the word; it leaves
// the remainder alone).
TANDEM_ISAL_API int xor_gen(int vects, int len, void **array);
TANDEM_ISAL_API int xor_gen_base(int vects, int len, void **array);
TANDEM_ISAL_API int pq_gen(int vects, int len, void **array);
TANDEM_ISAL_API int pq_gen_base(int vects, int len, void **array);
// 0 if all agree, else 1. Also 1: fewer than 2 (xor) or 4 (pq) vectors; for pq_check len no multiple of 16.
// pq_check_base returns the first byte i that differs: i | 1 for p, i | 2 for q.
TANDEM_ISAL_API int xor_check(int vects, int len, void **array);
TANDEM_ISAL_API int xor_check_base(int vects, int len, void **array);
TANDEM_ISAL_API int pq_check(int vects, int len, void **array);
TANDEM_ISAL_API int pq_check_base(int vects, int len, void **array);

// ---- version of the interface

TANDEM_ISAL_API unsigned isal_get_version(void);  // major << 16 | minor << 8 | patch
TANDEM_ISAL_API const char *isal_get_version_str(void);
