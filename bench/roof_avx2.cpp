// SPDX-License-Identifier: Apache-2.0
// 32-byte vectors of AVX2.
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace tandem::bench {
namespace {

struct Isa {
  using Vector = __m256i;
  static constexpr size_t kVectorBytes = 32;
  static constexpr char kName[] = "256-bit";
  static Vector zero() { return _mm256_setzero_si256(); }
  static Vector load(const unsigned char *from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }
  static void store(unsigned char *to, Vector vector) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), vector); }
  static void stream(unsigned char *to, Vector vector) { _mm256_stream_si256(reinterpret_cast<__m256i *>(to), vector); }
  static Vector exclusive_or(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
  static void fence() { _mm_sfence(); }
  static Vector opaque(Vector vector) {
    asm volatile("" : "+x"(vector));
    return vector;
  }
  static uint64_t fold(Vector vector) {
    const __m128i half = _mm_or_si128(_mm256_castsi256_si128(vector), _mm256_extracti128_si256(vector, 1));
    return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_or_si128(half, _mm_unpackhi_epi64(half, half))));
  }
};

}  // namespace
}  // namespace tandem::bench

#include "bench/roof_loop.hpp"

namespace tandem::bench {
extern const RoofLoops kRoofAvx2;
constinit const RoofLoops kRoofAvx2 = kRoofLoops;
}  // namespace tandem::bench
