// SPDX-License-Identifier: Apache-2.0
// Compiled with -mpclmul -msse4.1; only called where the CPU has them.
#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <wmmintrin.h>

namespace tandem::par2 {
void crc32_fold(uint32_t value, const unsigned char *bytes, size_t blocks, unsigned char (&folded_out)[16]);

namespace {

// 128 bits moved by the distance of `powers`, plus `next`: Intel, "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ", 2009.
inline __m128i fold(__m128i bits, __m128i powers, __m128i next) {
  return _mm_xor_si128(
      next, _mm_xor_si128(_mm_clmulepi64_si128(bits, powers, 0x00), _mm_clmulepi64_si128(bits, powers, 0x11)));
}

}  // namespace

void crc32_fold(uint32_t value, const unsigned char *bytes, size_t blocks, unsigned char (&folded_out)[16]) {
  const __m128i far = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);   // x^(512 - 32), x^(512 + 32), reflected
  const __m128i near = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);  // x^(128 - 32), x^(128 + 32)
  const auto load = [](const unsigned char *from) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)); };
  __m128i sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = load(bytes + 16 * i);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(value)));
  for (size_t block = 1; block < blocks; ++block)
    for (int i = 0; i < 4; ++i) sums[i] = fold(sums[i], far, load(bytes + 64 * block + 16 * i));
  for (int i = 1; i < 4; ++i) sums[i] = fold(sums[i - 1], near, sums[i]);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(folded_out), sums[3]);
}

}  // namespace tandem::par2
