// SPDX-License-Identifier: Apache-2.0
// Vocabulary of AVX2 with GFNI: one instruction multiplies 32 bytes by a constant, as an 8x8 bit matrix.
#include <immintrin.h>

#include "cpu/kernels/affine.hpp"
#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Isa {
  using Vector = __m256i;
  using Source = __m256i;
  static constexpr unsigned kVectorBytes = 32;
  static constexpr unsigned kCoefficientBytes = kAffineBytes;
  static constexpr bool kMasks = false;      // load_part and store_part cost no more than whole ones
  static constexpr bool kMergesTwo = false;  // multiply_add2 is cheaper than two multiply_add
  // The largest blocks with all sums in registers, and how many vectors side by side.
  static constexpr unsigned kMostQuads = 1, kMostPairs = 0, kMostPairsBesideQuad = 0, kMostSinglesBesideQuad = 0,
                            kMostSingles = 4, kMostDirectRows = 4;
  static constexpr unsigned kOnePairSteps = 2, kPairSteps = 1, kOneSingleSteps = 4, kTwoSingleSteps = 4,
                            kSingleSteps = 2, kFiveSingleSteps = 2, kSixSingleSteps = 2;
  static constexpr unsigned kMostRowsByStep = 0;  // all their tables are in registers, and one step of input
  static constexpr unsigned kFusedGroups = 0;     // of outputs, with all sums in registers beside one of inputs
  static constexpr unsigned kPassLevels = 3;      // of a transform, with all lanes in registers
  static constexpr unsigned kSumColumns = 1;      // vectors side by side of three sums
  static constexpr size_t kPrefetchBytes = 256;
  static constexpr size_t kStoreFetchBytes = 0;
  static constexpr unsigned kSpreadSteps = 2, kManySpreadSteps = 2, kRaidSteps = 4, kXorSteps = 8, kRaidInputs = 1;
  static constexpr size_t kTileInputBytes = 128 << 10, kPackedBytes = 32 << 10;
  static constexpr unsigned kPackedProducts = 80;  // rows x columns from which copying pays out of cache

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

  static Source source(Vector v) { return v; }
  static Vector add(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
  static Vector add3(Vector a, Vector b, Vector c) { return add(add(a, b), c); }

  static Vector multiply(const uint8_t *coefficient, Source x) {
    return _mm256_gf2p8affine_epi64_epi8(x, _mm256_set1_epi64x(*reinterpret_cast<const AffineWord *>(coefficient)), 0);
  }
  static void multiply_add(Vector &sum, const uint8_t *coefficient, Source x) {
    sum = add(sum, multiply(coefficient, x));
  }
  static void multiply_add2(Vector &sum, const uint8_t *a, Source x, const uint8_t *b, Source y) {
    sum = add3(multiply(a, x), multiply(b, y), sum);
  }
  // A prepared coefficient that kSteps vectors are multiplied by.
  template <unsigned kSteps>
  static const uint8_t *operand(const uint8_t *coefficient) {
    return coefficient;
  }
  static void prepare(uint8_t coefficient, uint8_t *table) { write_affine(coefficient, table); }
  // A coefficient from a nibble table: its product with 1.
  static const uint8_t *coefficient(const uint8_t *nibbles) {
    return reinterpret_cast<const uint8_t *>(&kAffine.word[nibbles[1]]);
  }
  using Factor = Vector;  // a coefficient in registers
  static Factor factor(const uint8_t *nibbles) { return broadcast(kAffine.word[nibbles[1]]); }
  static Vector times(Factor factor, Source x) { return _mm256_gf2p8affine_epi64_epi8(x, factor, 0); }
  static Vector twice(Vector v) { return times(broadcast(kAffine.word[2]), v); }
  static void end_streaming() { _mm_sfence(); }

 private:
  static Vector broadcast(uint64_t word) { return _mm256_set1_epi64x(static_cast<long long>(word)); }
};

#include "cpu/kernels/schedule.inc"
// All over the walk above.
#include "cpu/kernels/direct.inc"
#include "cpu/kernels/raid.inc"
#include "cpu/kernels/transform.inc"

// A block of GF(2^16) in two vectors.
struct Wide {
  struct Block {
    __m256i low, high;
  };
  struct Factor {
    __m256i low_to_low, high_to_high, high_to_low, low_to_high;
  };
  static constexpr unsigned kFactorBytes = kAffineMapBytes, kRowsAtOnce = 2, kBlocksAtOnce = 2;
  static void write_map(const uint16_t values[16], uint8_t *out) { write_affine_map(values, out); }
  static Block zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Block load(const uint8_t *from) { return load_planes(from, from + 32); }
  static void store(uint8_t *to, const Block &block) { store_planes(to, to + 32, block); }
  static Block load_planes(const uint8_t *low, const uint8_t *high) { return {part(low), part(high)}; }
  static void store_planes(uint8_t *low, uint8_t *high, const Block &block) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(low), block.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(high), block.high);
  }
  static Block add(const Block &a, const Block &b) {
    return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
  }
  // The order of the words in a block does not matter.
  static Block from_words(const Block &words) {
    const __m256i even =
        _mm256_set_epi64x(0x0f0d0b0907050301, 0x0e0c0a0806040200, 0x0f0d0b0907050301, 0x0e0c0a0806040200);
    const __m256i a = _mm256_shuffle_epi8(words.low, even), b = _mm256_shuffle_epi8(words.high, even);
    return {_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)};
  }
  static Block to_words(const Block &block) {
    const __m256i merge =
        _mm256_set_epi64x(0x0f070e060d050c04, 0x0b030a0209010800, 0x0f070e060d050c04, 0x0b030a0209010800);
    return {_mm256_shuffle_epi8(_mm256_unpacklo_epi64(block.low, block.high), merge),
            _mm256_shuffle_epi8(_mm256_unpackhi_epi64(block.low, block.high), merge)};
  }
  static Factor factor(const uint8_t *low, const uint8_t *high) {
    const __m256i map = _mm256_xor_si256(part(low), part(high));
    return {_mm256_permute4x64_epi64(map, 0x00), _mm256_permute4x64_epi64(map, 0x55),
            _mm256_permute4x64_epi64(map, 0xaa), _mm256_permute4x64_epi64(map, 0xff)};
  }
  static Block times(const Factor &factor, const Block &x) {
    return {_mm256_xor_si256(_mm256_gf2p8affine_epi64_epi8(x.low, factor.low_to_low, 0),
                             _mm256_gf2p8affine_epi64_epi8(x.high, factor.high_to_low, 0)),
            _mm256_xor_si256(_mm256_gf2p8affine_epi64_epi8(x.high, factor.high_to_high, 0),
                             _mm256_gf2p8affine_epi64_epi8(x.low, factor.low_to_high, 0))};
  }

 private:
  static __m256i part(const uint8_t *from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }
};

#include "cpu/kernels/gf16.inc"

bool supported(const CpuFeatures &features) { return features.avx2 && features.gfni; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelAvx2Gfni;
constinit const Kernel kKernelAvx2Gfni = entry("avx2-gfni", "AVX2; GFNI", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
