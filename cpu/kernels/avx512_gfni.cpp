// SPDX-License-Identifier: Apache-2.0
// Vocabulary of AVX-512 with GFNI: one instruction multiplies 64 bytes by a constant, as an 8x8 bit matrix
// (Intel SDM, GF2P8AFFINEQB). Its own field is not ours, so the affine form is used, not GF2P8MULB.
#include <immintrin.h>

#include "cpu/kernels/affine.hpp"
#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Isa {
  using Vector = __m512i;
  using Source = __m512i;  // what a loaded vector becomes before it is multiplied
  static constexpr unsigned kVectorBytes = 64;
  static constexpr unsigned kCoefficientBytes = kAffineBytes;
  static constexpr bool kMasks = true;      // load_part and store_part cost no more than whole ones
  static constexpr bool kMergesTwo = true;  // multiply_add2 is cheaper than two multiply_add
  // The largest blocks with all sums in registers, and how many vectors side by side.
  static constexpr unsigned kMostQuads = 2, kMostPairs = 5, kMostPairsBesideQuad = 2, kMostSinglesBesideQuad = 1,
                            kMostSingles = 6, kMostDirectRows = 6;
  static constexpr unsigned kOnePairSteps = 2, kPairSteps = 2, kOneSingleSteps = 4, kTwoSingleSteps = 4,
                            kSingleSteps = 2, kFiveSingleSteps = 2, kSixSingleSteps = 2;
  static constexpr unsigned kMostRowsByStep = 0;  // all their tables are in registers, and one step of input
  static constexpr unsigned kFusedGroups = 2;     // of outputs, with all sums in registers beside one of inputs
  static constexpr unsigned kPassLevels = 4;      // of a transform, with all lanes in registers
  static constexpr unsigned kSumColumns = 2;      // vectors side by side of three sums
  static constexpr size_t kPrefetchBytes = 256;
  static constexpr size_t kStoreFetchBytes = 256;  // Emerald Rapids: KERNELS.md. Not measured on AMD
  static constexpr unsigned kSpreadSteps = 2, kManySpreadSteps = 2, kRaidSteps = 4, kXorSteps = 8;
  static constexpr unsigned kRaidInputs = 2;  // Emerald Rapids, 1 to 64 KiB: XOR 1.03 to 1.08, P+Q 1.02 to 1.08 of one
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

  static Source source(Vector v) { return v; }
  static Source add(Source a, Source b) { return _mm512_xor_si512(a, b); }
  static Vector add3(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

  // A prepared coefficient that kSteps vectors are multiplied by: broadcast once for several (Zen 5 loads two vectors a
  // cycle, and multiplies as many), for one vector the instruction's own operand.
  //
  // Written by hand: GCC 12 broadcasts the coefficient in a separate instruction (a sixth of all). LLVM 14 encodes the
  // displacement of this instruction's broadcast operand 8 times too large, from intrinsics and from assembly.
  template <unsigned kSteps>
  static auto operand(const uint8_t *coefficient) {
#if defined(__clang__)
    constexpr bool kBroadcast = true;
#else
    constexpr bool kBroadcast = kSteps > 1;
#endif
    const AffineWord *word = reinterpret_cast<const AffineWord *>(coefficient);
    if constexpr (kBroadcast) {
      Vector wide;
      asm("vpbroadcastq %1, %0" : "=v"(wide) : "m"(*word));
      return wide;
    } else {
      return word;
    }
  }
  static Vector multiply(Vector operand, Source x) { return times(operand, x); }
  static Vector multiply(const AffineWord *operand, Source x) {
    Vector product;
    asm("vgf2p8affineqb $0, %2%{1to8%}, %1, %0" : "=v"(product) : "v"(x), "m"(*operand));
    return product;
  }
  template <class Operand>
  static void multiply_add(Vector &sum, Operand a, Source x) {
    sum = _mm512_xor_si512(sum, multiply(a, x));
  }
  template <class Operand>
  static void multiply_add2(Vector &sum, Operand a, Source x, Operand b, Source y) {
    sum = add3(sum, multiply(a, x), multiply(b, y));
  }
  static void prepare(uint8_t coefficient, uint8_t *table) { write_affine(coefficient, table); }
  // A coefficient from a nibble table: its product with 1.
  static const uint8_t *coefficient(const uint8_t *nibbles) {
    return reinterpret_cast<const uint8_t *>(&kAffine.word[nibbles[1]]);
  }
  using Factor = Vector;  // a coefficient in registers
  static Factor factor(const uint8_t *nibbles) { return broadcast(kAffine.word[nibbles[1]]); }
  static Vector times(Factor factor, Source x) { return _mm512_gf2p8affine_epi64_epi8(x, factor, 0); }
  static Vector twice(Vector v) { return times(broadcast(kAffine.word[2]), v); }
  static Vector four_times(Vector v) { return times(broadcast(kAffine.word[4]), v); }
  static void end_streaming() { _mm_sfence(); }

 private:
  static Vector broadcast(uint64_t word) { return _mm512_set1_epi64(static_cast<long long>(word)); }
  static __mmask64 mask(size_t bytes) { return ~uint64_t{0} >> (64 - bytes); }
};

#include "cpu/kernels/schedule.inc"
// All over the walk above.
#include "cpu/kernels/direct.inc"
#include "cpu/kernels/raid.inc"
#include "cpu/kernels/transform.inc"

// A block of GF(2^16) in one vector: low bytes in the lower half.
struct Wide {
  using Block = __m512i;
  struct Factor {
    __m512i straight, crossed;  // low to low and high to high; high to low and low to high
  };
  static constexpr unsigned kFactorBytes = kAffineMapBytes, kRowsAtOnce = 4, kBlocksAtOnce = 4;
  static void write_map(const uint16_t values[16], uint8_t *out) { write_affine_map(values, out); }
  static Block zero() { return _mm512_setzero_si512(); }
  static Block load(const uint8_t *from) { return _mm512_loadu_si512(from); }
  static void store(uint8_t *to, Block v) { _mm512_storeu_si512(to, v); }
  static Block load_planes(const uint8_t *low, const uint8_t *high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(low))),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i *>(high)), 1);
  }
  static void store_planes(uint8_t *low, uint8_t *high, Block v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(low), _mm512_castsi512_si256(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(high), _mm512_extracti64x4_epi64(v, 1));
  }
  static Block add(Block a, Block b) { return _mm512_xor_si512(a, b); }
  static Block from_words(Block words) {
    const __m512i split =
        _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_set_epi64x(0x0f0d0b0907050301, 0x0e0c0a0806040200)));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), split);
  }
  static Block to_words(Block planes) {
    const __m512i split = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), planes);
    return _mm512_shuffle_epi8(split, _mm512_broadcast_i32x4(_mm_set_epi64x(0x0f070e060d050c04, 0x0b030a0209010800)));
  }
  static Factor factor(const uint8_t *low, const uint8_t *high) {
    const __m256i map = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(low)),
                                         _mm256_loadu_si256(reinterpret_cast<const __m256i *>(high)));
    const __m512i wide = _mm512_castsi256_si512(map);
    return {_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1), wide),
            _mm512_permutexvar_epi64(_mm512_setr_epi64(2, 2, 2, 2, 3, 3, 3, 3), wide)};
  }
  static Block times(const Factor &factor, Block x) {
    return _mm512_xor_si512(_mm512_gf2p8affine_epi64_epi8(x, factor.straight, 0),
                            _mm512_gf2p8affine_epi64_epi8(_mm512_shuffle_i64x2(x, x, 0x4e), factor.crossed, 0));
  }
};

#include "cpu/kernels/gf16.inc"

bool supported(const CpuFeatures &features) { return features.avx512 && features.gfni; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelAvx512Gfni;
constinit const Kernel kKernelAvx512Gfni =
    entry("avx512-gfni", "AVX-512 F, BW, VL, DQ; GFNI", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
