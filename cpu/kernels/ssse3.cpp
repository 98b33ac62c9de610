// SPDX-License-Identifier: Apache-2.0
// Vocabulary of SSSE3: products from two 16-entry tables by PSHUFB, 16 bytes at a time.
#include <immintrin.h>

#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Isa {
  using Vector = __m128i;
  struct Source {  // the low and the high half of every byte: indices into the tables
    __m128i low, high;
  };
  static constexpr unsigned kVectorBytes = 16;
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

  static Vector zero() { return _mm_setzero_si128(); }
  static Vector load(const uint8_t *from) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)); }
  static void store(uint8_t *to, Vector v) { _mm_storeu_si128(reinterpret_cast<__m128i *>(to), v); }
  static void stream(uint8_t *to, Vector v) { _mm_stream_si128(reinterpret_cast<__m128i *>(to), v); }
  static Vector load_part(const uint8_t *from, size_t bytes) {
    alignas(16) uint8_t whole[16] = {};
    __builtin_memcpy(whole, from, bytes);
    return _mm_load_si128(reinterpret_cast<const __m128i *>(whole));
  }
  static void store_part(uint8_t *to, Vector v, size_t bytes) {
    alignas(16) uint8_t whole[16];
    _mm_store_si128(reinterpret_cast<__m128i *>(whole), v);
    __builtin_memcpy(to, whole, bytes);
  }

  static Source source(Vector v) {
    const __m128i nibble = _mm_set1_epi8(15);
    return {_mm_and_si128(v, nibble), _mm_and_si128(_mm_srli_epi64(v, 4), nibble)};
  }
  static Source add(Source a, Source b) { return {add(a.low, b.low), add(a.high, b.high)}; }
  static Vector add(Vector a, Vector b) { return _mm_xor_si128(a, b); }
  static Vector add3(Vector a, Vector b, Vector c) { return add(add(a, b), c); }

  static void multiply_add(Vector &sum, const uint8_t *coefficient, Source x) {
    sum = add3(_mm_shuffle_epi8(load(coefficient), x.low), _mm_shuffle_epi8(load(coefficient + 16), x.high), sum);
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
  static Factor factor(const uint8_t *nibbles) { return {load(nibbles), load(nibbles + 16)}; }
  static Vector times(Factor factor, Source x) {
    return add(_mm_shuffle_epi8(factor.low, x.low), _mm_shuffle_epi8(factor.high, x.high));
  }
  static Vector twice(Vector v) {
    const Vector overflows = _mm_cmpgt_epi8(_mm_setzero_si128(), v);
    return _mm_xor_si128(_mm_add_epi8(v, v), _mm_and_si128(overflows, _mm_set1_epi8(0x1d)));
  }
  static void end_streaming() { _mm_sfence(); }
};

#include "cpu/kernels/schedule.inc"
// All over the walk above.
#include "cpu/kernels/direct.inc"
#include "cpu/kernels/raid.inc"
#include "cpu/kernels/transform.inc"

struct Lookup {
  using Vector = __m128i;
  static Vector zero() { return _mm_setzero_si128(); }
  static Vector load(const uint8_t *from) { return Isa::load(from); }
  static void store(uint8_t *to, Vector v) { Isa::store(to, v); }
  static Vector add(Vector a, Vector b) { return _mm_xor_si128(a, b); }
  static Vector low_nibbles(Vector v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }
  static Vector high_nibbles(Vector v) { return low_nibbles(_mm_srli_epi64(v, 4)); }
  static Vector look_up(const uint8_t *table, Vector index) { return _mm_shuffle_epi8(load(table), index); }
  // Sorts the bytes of 8 words: low bytes before high bytes, and back.
  static Vector split(Vector v) { return _mm_shuffle_epi8(v, _mm_set_epi64x(0x0f0d0b0907050301, 0x0e0c0a0806040200)); }
  static Vector merge(Vector v) { return _mm_shuffle_epi8(v, _mm_set_epi64x(0x0f070e060d050c04, 0x0b030a0209010800)); }
  static Vector low_parts(Vector a, Vector b) { return _mm_unpacklo_epi64(a, b); }
  static Vector high_parts(Vector a, Vector b) { return _mm_unpackhi_epi64(a, b); }
};

#include "cpu/kernels/gf16_nibbles.inc"
// Over that.
#include "cpu/kernels/gf16.inc"

bool supported(const CpuFeatures &features) { return features.ssse3; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelSsse3;
constinit const Kernel kKernelSsse3 = entry("ssse3", "SSSE3", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
