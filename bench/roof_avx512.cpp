// SPDX-License-Identifier: Apache-2.0
// 64-byte vectors of AVX-512F.
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace tandem::bench {
namespace {

struct Isa {
  using Vector = __m512i;
  static constexpr size_t kVectorBytes = 64;
  static constexpr char kName[] = "512-bit";
  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector load(const unsigned char *from) { return _mm512_loadu_si512(from); }
  static void store(unsigned char *to, Vector vector) { _mm512_storeu_si512(to, vector); }
  static void stream(unsigned char *to, Vector vector) { _mm512_stream_si512(reinterpret_cast<__m512i *>(to), vector); }
  static Vector exclusive_or(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
  static void fence() { _mm_sfence(); }
  static Vector opaque(Vector vector) {
    asm volatile("" : "+v"(vector));
    return vector;
  }
  static uint64_t fold(Vector vector) {  // by memory: GCC 12 warns about its own reduce intrinsics
    uint64_t words[8], folded = 0;
    _mm512_storeu_si512(words, vector);
    for (const uint64_t word : words) folded |= word;
    return folded;
  }
};

}  // namespace
}  // namespace tandem::bench

#include "bench/roof_loop.hpp"

namespace tandem::bench {
extern const RoofLoops kRoofAvx512;
constinit const RoofLoops kRoofAvx512 = kRoofLoops;
}  // namespace tandem::bench
