// SPDX-License-Identifier: Apache-2.0
// The constants of the additive Fourier transform over subspaces {0 .. 2^i - 1} of our field in its standard basis
// (Cantor; Lin, Chung, Han: Novel polynomial basis and its application to Reed-Solomon erasure codes, FOCS 2014). Plain
// data and static functions: for kernel files.
#pragma once

#include <stdint.h>

#include "cpu/kernels/field.hpp"

namespace tandem::cpu {
namespace {

constexpr unsigned kMostLevels = 5;  // groups of up to 32 points

// s_0(x) = x, s_(i+1)(x) = s_i(x) * (s_i(x) + s_i(2^i)): zero on {0 .. 2^(i+1) - 1}.
struct TransformConstants {
  uint8_t twiddle[kMostLevels][256];      // [l][x]: s_l(x) / s_l(2^l)
  uint8_t between[kMostLevels + 1][256];  // [i][x]: of two groups of 2^i points that are x apart, x not 0
};

constexpr TransformConstants make_transform_constants() {
  TransformConstants constants = {};
  uint8_t subspace[256] = {};
  for (unsigned x = 0; x < 256; ++x) subspace[x] = static_cast<uint8_t>(x);
  uint8_t scale = 1;  // the product of s_l(2^l) of the levels so far
  for (unsigned i = 0; i <= kMostLevels; ++i) {
    const uint8_t sigma = subspace[1u << i];
    for (unsigned x = 0; x < 256; ++x) {
      if (subspace[x] != 0) constants.between[i][x] = field_divide(scale, subspace[x]);
      if (i < kMostLevels) constants.twiddle[i][x] = field_divide(subspace[x], sigma);
    }
    for (unsigned x = 0; x < 256; ++x) subspace[x] = field_multiply(subspace[x], subspace[x] ^ sigma);
    scale = field_multiply(scale, sigma);
  }
  return constants;
}

constexpr TransformConstants kTransform = make_transform_constants();

}  // namespace
}  // namespace tandem::cpu
