// SPDX-License-Identifier: Apache-2.0
// Vocabulary of AVX2: products from two 16-entry tables by VPSHUFB, 32 bytes at a time.
#include <immintrin.h>

#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Isa {
  using Vector = __m256i;
  struct Source {  // the low and the high half of every byte: indices into the tables
    __m256i low, high;
  };
  static constexpr unsigned kVectorBytes = 32;
  static constexpr unsigned kCoefficientBytes = kNibbleTableBytes;
  static constexpr bool kMasks = false;      // load_part and store_part cost no more than whole ones
  static constexpr bool kMergesTwo = false;  // multiply_add2 is cheaper than two multiply_add
  // The largest blocks with all sums in registers, and how many vectors side by side.
  static constexpr unsigned kMostQuads = 0, kMostPairs = 2, kMostPairsBesideQuad = 0, kMostSinglesBesideQuad = 0,
                            kMostSingles = 4, kMostDirectRows = 4;
  static constexpr unsigned kOnePairSteps = 2, kPairSteps = 1, kOneSingleSteps = 4, kTwoSingleSteps = 2,
                            kSingleSteps = 2, kFiveSingleSteps = 2, kSixSingleSteps = 2;
  static constexpr unsigned kMostRowsByStep = 0;  // all their tables are in registers, and one step of input
  static constexpr unsigned kFusedGroups = 0;     // of outputs, with all sums in registers beside one of inputs
  static constexpr unsigned kPassLevels = 2;      // of a transform, with all lanes in registers
  static constexpr unsigned kSumColumns = 1;      // vectors side by side of three sums
  static constexpr size_t kPrefetchBytes = 256;
  static constexpr size_t kStoreFetchBytes = 0;
  static constexpr unsigned kSpreadSteps = 1, kManySpreadSteps = 1, kRaidSteps = 4, kXorSteps = 8, kRaidInputs = 1;
  static constexpr size_t kTileInputBytes = 128 << 10, kPackedBytes = 32 << 10;
  static constexpr unsigned kPackedProducts = 64;  // rows x columns from which copying pays out of cache

  static Vector zero() { return _mm256_setzero_si256(); }
  static Vector load(const uint8_t *from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }
  static void store(uint8_t *to, Vector v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), v); }
  static void stream(uint8_t *to, Vector v) { _mm256_stream_si256(reinterpret_cast<__m256i *>(to), v); }
  static Vector load_part(const uint8_t *from, size_t bytes) {
    alignas(32) uint8_t whole[32] = {};
    __builtin_memcpy(whole, from, bytes);
    return _mm256_load_si256(reinterpret_cast<const __m256i *>(whole));
  }
  static void store_part(uint8_t *to, Vector v, size_t bytes) {
    alignas(32) uint8_t whole[32];
    _mm256_store_si256(reinterpret_cast<__m256i *>(whole), v);
    __builtin_memcpy(to, whole, bytes);
  }

  static Source source(Vector v) {
    const __m256i nibble = _mm256_set1_epi8(15);
    return {_mm256_and_si256(v, nibble), _mm256_and_si256(_mm256_srli_epi64(v, 4), nibble)};
  }
  static Source add(Source a, Source b) { return {add(a.low, b.low), add(a.high, b.high)}; }
  static Vector add(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
  static Vector add3(Vector a, Vector b, Vector c) { return add(add(a, b), c); }

  static void multiply_add(Vector &sum, const uint8_t *coefficient, Source x) {
    sum =
        add3(_mm256_shuffle_epi8(table(coefficient), x.low), _mm256_shuffle_epi8(table(coefficient + 16), x.high), sum);
  }
  static void multiply_add2(Vector &sum, const uint8_t *a, Source x, const uint8_t *b, Source y) {
    multiply_add(sum, a, x);
    multiply_add(sum, b, y);
  }
  // A prepared coefficient that kSteps vectors are multiplied by.
  template <unsigned kSteps>
  static const uint8_t *operand(const uint8_t *coefficient) {
    return coefficient;
  }
  static void prepare(uint8_t coefficient, uint8_t *out) { write_nibbles(coefficient, out); }
  // A coefficient from a nibble table: the table itself.
  static const uint8_t *coefficient(const uint8_t *nibbles) { return nibbles; }
  struct Factor {  // a coefficient in registers
    Vector low, high;
  };
  static Factor factor(const uint8_t *nibbles) { return {table(nibbles), table(nibbles + 16)}; }
  static Vector times(Factor factor, Source x) {
    return add(_mm256_shuffle_epi8(factor.low, x.low), _mm256_shuffle_epi8(factor.high, x.high));
  }
  static Vector twice(Vector v) {
    const Vector overflows = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
    return _mm256_xor_si256(_mm256_add_epi8(v, v), _mm256_and_si256(overflows, _mm256_set1_epi8(0x1d)));
  }
  static void end_streaming() { _mm_sfence(); }

 private:
  static __m256i table(const uint8_t *from) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
  }
};

#include "cpu/kernels/schedule.inc"
// All over the walk above.
#include "cpu/kernels/direct.inc"
#include "cpu/kernels/raid.inc"
#include "cpu/kernels/transform.inc"

#include "cpu/kernels/gf16_lookup256.inc"
// Over that.
#include "cpu/kernels/gf16_nibbles.inc"
// Over that.
#include "cpu/kernels/gf16.inc"

bool supported(const CpuFeatures &features) { return features.avx2; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelAvx2;
constinit const Kernel kKernelAvx2 = entry("avx2", "AVX2", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
