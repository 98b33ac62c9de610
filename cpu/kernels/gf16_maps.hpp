// SPDX-License-Identifier: Apache-2.0
// A linear map of 16 bits, given as its values at the 16 single bits, in the forms of instruction sets. For kernel
// files.
#pragma once

#include <stdint.h>

namespace tandem::cpu {
namespace {

// Four 8x8 bit matrices of GF2P8AFFINEQB (see affine.hpp): low to low byte, high to high, high to low, low to high.
constexpr unsigned kAffineMapBytes = 32;

inline void write_affine_map(const uint16_t values[16], uint8_t *out) {
  constexpr unsigned kFrom[4] = {0, 8, 8, 0}, kTo[4] = {0, 8, 0, 8};
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    for (unsigned i = 0; i < 8; ++i) {
      unsigned row = 0;
      for (unsigned b = 0; b < 8; ++b) row |= (values[kFrom[matrix] + b] >> (kTo[matrix] + i) & 1u) << b;
      out[matrix * 8 + 7 - i] = static_cast<uint8_t>(row);
    }
  }
}

// For each nibble of the source 16 low bytes, then 16 high bytes of its values (see nibbles.hpp).
constexpr unsigned kNibbleMapBytes = 128;

inline void write_nibble_map(const uint16_t values[16], uint8_t *out) {
  for (unsigned nibble = 0; nibble < 4; ++nibble) {
    for (unsigned v = 0; v < 16; ++v) {
      unsigned sum = 0;
      for (unsigned b = 0; b < 4; ++b)
        if (v >> b & 1) sum ^= values[nibble * 4 + b];
      out[nibble * 32 + v] = static_cast<uint8_t>(sum);
      out[nibble * 32 + 16 + v] = static_cast<uint8_t>(sum >> 8);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
