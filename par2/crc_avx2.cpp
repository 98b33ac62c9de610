// SPDX-License-Identifier: Apache-2.0
// Compiled with -mvpclmulqdq -mpclmul -mavx2; only called where the CPU has it.
#include <immintrin.h>

namespace {
using Vector = __m256i;
inline Vector low(Vector v, Vector w) { return _mm256_clmulepi64_epi128(v, w, 0x00); }
inline Vector high(Vector v, Vector w) { return _mm256_clmulepi64_epi128(v, w, 0x11); }
}  // namespace
#include "par2/crc.inc"

namespace tandem::par2 {
extern const CrcKernel crc_avx2;
const CrcKernel crc_avx2 = {"avx2", kBlockBytes, fold};
}  // namespace tandem::par2
