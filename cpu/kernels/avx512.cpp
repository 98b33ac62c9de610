// SPDX-License-Identifier: Apache-2.0
// Vocabulary of AVX-512 without GFNI: products from two 16-entry tables by VPSHUFB, 64 bytes at a time.
#include <immintrin.h>

#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Isa {
  using Vector = __m512i;
  struct Source {  // the low and the high half of every byte: indices into the tables
    __m512i low, high;
  };
  static constexpr unsigned kVectorBytes = 64;
  static constexpr unsigned kCoefficientBytes = kNibbleTableBytes;
  static constexpr bool kMasks = true;       // load_part and store_part cost no more than whole ones
  static constexpr bool kMergesTwo = false;  // multiply_add2 is cheaper than two multiply_add
  // The largest blocks with all sums in registers, and how many vectors side by side.
  static constexpr unsigned kMostQuads = 1, kMostPairs = 2, kMostPairsBesideQuad = 0, kMostSinglesBesideQuad = 0,
                            kMostSingles = 6, kMostDirectRows = 6;
  static constexpr unsigned kOnePairSteps = 2, kPairSteps = 1, kOneSingleSteps = 4, kTwoSingleSteps = 2,
                            kSingleSteps = 2, kFiveSingleSteps = 2, kSixSingleSteps = 2;
  static constexpr unsigned kMostRowsByStep = 0;  // all their tables are in registers, and one step of input
  static constexpr unsigned kFusedGroups = 2;     // of outputs, with all sums in registers beside one of inputs
  static constexpr unsigned kPassLevels = 4;      // of a transform, with all lanes in registers
  static constexpr unsigned kSumColumns = 2;      // vectors side by side of three sums
  static constexpr size_t kPrefetchBytes = 256;
  static constexpr size_t kStoreFetchBytes = 0;
  static constexpr unsigned kSpreadSteps = 2, kManySpreadSteps = 2, kRaidSteps = 4, kXorSteps = 8, kRaidInputs = 1;
  static constexpr size_t kTileInputBytes = 128 << 10, kPackedBytes = 32 << 10;
  static constexpr unsigned kPackedProducts = 1024;  // rows x columns from which copying pays out of cache

  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector load(const uint8_t *from) { return _mm512_loadu_si512(from); }
  static void store(uint8_t *to, Vector v) { _mm512_storeu_si512(to, v); }
  static void stream(uint8_t *to, Vector v) { _mm512_stream_si512(reinterpret_cast<__m512i *>(to), v); }
  // By hand: GCC 12 computes the address of the intrinsic in an instruction of its own.
  static Vector load_part(const uint8_t *from, size_t bytes) {
    Vector v;
    asm("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*reinterpret_cast<const uint8_t(*)[64]>(from)), "Yk"(mask(bytes)));
    return v;
  }
  static void store_part(uint8_t *to, Vector v, size_t bytes) { _mm512_mask_storeu_epi8(to, mask(bytes), v); }

  static Source source(Vector v) {
    const __m512i nibble = _mm512_set1_epi8(15);
    return {_mm512_and_si512(v, nibble), _mm512_and_si512(_mm512_srli_epi64(v, 4), nibble)};
  }
  static Source add(Source a, Source b) { return {_mm512_xor_si512(a.low, b.low), _mm512_xor_si512(a.high, b.high)}; }
  static Vector add(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
  static Vector add3(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

  static void multiply_add(Vector &sum, const uint8_t *coefficient, Source x) {
    sum =
        add3(sum, _mm512_shuffle_epi8(table(coefficient), x.low), _mm512_shuffle_epi8(table(coefficient + 16), x.high));
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
    return add(_mm512_shuffle_epi8(factor.low, x.low), _mm512_shuffle_epi8(factor.high, x.high));
  }
  static Vector twice(Vector v) {
    const Vector reduced = _mm512_maskz_set1_epi8(_mm512_movepi8_mask(v), 0x1d);
    return _mm512_xor_si512(_mm512_add_epi8(v, v), reduced);
  }
  static void end_streaming() { _mm_sfence(); }

 private:
  static __mmask64 mask(size_t bytes) { return ~uint64_t{0} >> (64 - bytes); }
  static __m512i table(const uint8_t *from) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
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

bool supported(const CpuFeatures &features) { return features.avx512; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelAvx512;
constinit const Kernel kKernelAvx512 =
    entry("avx512", "AVX-512 F, BW, VL, DQ", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
