// SPDX-License-Identifier: Apache-2.0
// A constant of our field as two tables of sixteen products, for PSHUFB: x * c = low[x & 15] ^ high[x >> 4] (Plank,
// Greenan, Miller: Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions, FAST 2013). For kernel files.
#pragma once

#include <stdint.h>

namespace tandem::cpu {
namespace {

// Eight entries at once: in the constants, byte i of eight is 1 where entry i has the bit.
inline void write_nibbles(uint8_t coefficient, uint8_t *table) {
  uint64_t power[8] = {coefficient};  // coefficient * 2^b
  for (unsigned b = 1; b < 8; ++b) power[b] = (power[b - 1] << 1) ^ ((power[b - 1] >> 7) * 0x11d);
  for (unsigned half = 0; half < 2; ++half) {
    const uint64_t *const bits = power + 4 * half;
    const uint64_t low = bits[0] * 0x0100010001000100 ^ bits[1] * 0x0101000001010000 ^ bits[2] * 0x0101010100000000;
    const uint64_t entries[2] = {low, low ^ bits[3] * 0x0101010101010101};
    __builtin_memcpy(table + 16 * half, entries, sizeof entries);
  }
}

}  // namespace
}  // namespace tandem::cpu
