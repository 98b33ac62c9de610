// A constant of our field as two tables of sixteen products, for PSHUFB: x * c = low[x & 15] ^ high[x >> 4] (Plank,
// Greenan, Miller: Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions, FAST 2013). For kernel files.
#pragma once

#include <stdint.h>

namespace tandem::cpu {
namespace {

inline void write_nibbles(uint8_t coefficient, uint8_t *table) {
  unsigned power = coefficient;  // coefficient * 2^b
  table[0] = table[16] = 0;
  for (unsigned b = 0; b < 8; ++b) {
    uint8_t *half = table + (b < 4 ? 0 : 16);
    const unsigned bit = 1u << (b & 3);
    for (unsigned i = 0; i < bit; ++i) half[bit + i] = static_cast<uint8_t>(half[i] ^ power);
    power = (power << 1) ^ ((power >> 7) * 0x11d);
  }
}

}  // namespace
}  // namespace tandem::cpu
