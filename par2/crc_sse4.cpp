// SPDX-License-Identifier: Apache-2.0
// Compiled with -mpclmul -msse4.1; only called where the CPU has it.
#include <immintrin.h>

namespace {
using Vector = __m128i;
inline Vector low(Vector v, Vector w) { return _mm_clmulepi64_si128(v, w, 0x00); }
inline Vector high(Vector v, Vector w) { return _mm_clmulepi64_si128(v, w, 0x11); }
}  // namespace
#include "par2/crc.inc"

namespace tandem::par2 {
extern const CrcKernel crc_sse4;
const CrcKernel crc_sse4 = {"sse4", kBlockBytes, fold};
}  // namespace tandem::par2
