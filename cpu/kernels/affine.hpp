// SPDX-License-Identifier: Apache-2.0
// A constant of our field as the 8x8 bit matrix of GF2P8AFFINEQB. Plain data and static functions: for kernel files.
#pragma once

#include <stdint.h>

namespace tandem::cpu {
namespace {

constexpr unsigned kAffineBytes = 8;
typedef long long __attribute__((may_alias, aligned(1))) AffineWord;

struct AffineTable {
  uint64_t word[256];
};

// Output bit i of a byte is the parity of (matrix byte 7 - i AND x) (Intel SDM): so bit b of matrix byte 7 - i is bit i
// of coefficient * 2^b.
constexpr AffineTable make_affine_table() {
  AffineTable table = {};
  for (unsigned coefficient = 0; coefficient < 256; ++coefficient) {
    unsigned product = coefficient;
    for (unsigned b = 0; b < 8; ++b) {
      for (unsigned i = 0; i < 8; ++i)
        table.word[coefficient] |= static_cast<uint64_t>(product >> i & 1) << ((7 - i) * 8 + b);
      product = (product << 1) ^ ((product >> 7) * 0x11d);
    }
  }
  return table;
}

constexpr AffineTable kAffine = make_affine_table();

inline void write_affine(uint8_t coefficient, uint8_t *table) {
  __builtin_memcpy(table, &kAffine.word[coefficient], kAffineBytes);
}

}  // namespace
}  // namespace tandem::cpu
