// SPDX-License-Identifier: Apache-2.0
// Any CPU with 64-bit words: eight products in one word (SWAR). A product by the constant c is
// XOR over bits b of x of (c * 2^b): isolate bit b of every byte, and multiply that word of zeros and ones by the byte
// c * 2^b, which cannot carry from one byte into the next.
#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101;

uint64_t load(const uint8_t *from, size_t bytes) {
  uint64_t word = 0;
  __builtin_memcpy(&word, from, bytes);
  return word;
}

uint64_t multiply(const uint8_t *shifted_products, uint64_t x) {
  uint64_t product = 0;
  for (int bit = 0; bit < 8; ++bit) product ^= ((x >> bit) & kOnes) * shifted_products[bit];
  return product;
}

// Vocabulary for the transform.
struct Isa {
  using Vector = uint64_t;
  using Source = uint64_t;
  static constexpr unsigned kVectorBytes = 8, kCoefficientBytes = 8;
  static constexpr unsigned kFusedGroups = 0, kMostQuads = 0, kMostPairs = 0, kPassLevels = 2, kSumColumns = 1;
  static constexpr size_t kPrefetchBytes = 256;
  static constexpr size_t kStoreFetchBytes = 0;

  static Vector zero() { return 0; }
  static Vector load(const uint8_t *from) { return load_part(from, 8); }
  static Vector load_part(const uint8_t *from, size_t bytes) { return tandem::cpu::load(from, bytes); }
  static void store(uint8_t *to, Vector v) { store_part(to, v, 8); }
  static void store_part(uint8_t *to, Vector v, size_t bytes) { __builtin_memcpy(to, &v, bytes); }
  static void stream(uint8_t *to, Vector v) { store(to, v); }
  static void end_streaming() {}
  static Source source(Vector v) { return v; }
  static Vector add(Vector a, Vector b) { return a ^ b; }
  template <unsigned kSteps>
  static const uint8_t *operand(const uint8_t *coefficient) {
    return coefficient;
  }
  static void multiply_add(Vector &sum, const uint8_t *coefficient, Source x) { sum ^= multiply(coefficient, x); }
  static void multiply_add2(Vector &sum, const uint8_t *a, Source x, const uint8_t *b, Source y) {
    sum ^= multiply(a, x) ^ multiply(b, y);
  }
  // Eight bytes: c, c * 2, c * 4, ... c * 128.
  static void prepare(uint8_t coefficient, uint8_t *out) {
    unsigned product = coefficient;
    for (int bit = 0; bit < 8; ++bit) {
      out[bit] = static_cast<uint8_t>(product);
      product = (product << 1) ^ ((product >> 7) * 0x11d);
    }
  }
};

size_t tables_bytes(uint32_t rows, uint32_t columns) { return size_t{8} * rows * columns; }

void prepare(const uint8_t *coefficients, uint32_t rows, uint32_t columns, void *tables) {
  uint8_t *out = static_cast<uint8_t *>(tables);
  for (size_t i = 0; i < size_t{rows} * columns; ++i, out += Isa::kCoefficientBytes) Isa::prepare(coefficients[i], out);
}

void apply_word(const KernelCall &call, size_t at, size_t bytes) {
  const uint8_t *row = static_cast<const uint8_t *>(call.tables);
  for (uint32_t r = 0; r < call.rows; ++r) {
    uint64_t sum = call.accumulate ? load(call.outputs[r] + at, bytes) : 0;
    for (uint32_t c = 0; c < call.columns; ++c, row += 8) sum ^= multiply(row, load(call.inputs[c] + at, bytes));
    __builtin_memcpy(call.outputs[r] + at, &sum, bytes);
  }
}

void apply(const KernelCall &call) {
  const size_t end = call.offset_bytes + call.length_bytes;
  size_t at = call.offset_bytes;
  for (; end - at >= 8; at += 8) apply_word(call, at, 8);
  if (at < end) apply_word(call, at, end - at);
}

constexpr uint32_t kRowsAtOnce = 6;
constexpr size_t kColumnBytes = 64, kColumnWords = kColumnBytes / 8;

// One column of up to 64 bytes for up to kRowsAtOnce rows, from nibble tables, which hold the eight products that
// `multiply` wants.
void nibble_column(const NibbleCall &call, uint32_t row, uint32_t rows, size_t at, size_t bytes) {
  uint64_t sum[kRowsAtOnce][kColumnWords] = {};
  if (call.accumulate)
    for (uint32_t r = 0; r < rows; ++r) __builtin_memcpy(sum[r], call.outputs[row + r] + at, bytes);
  for (uint32_t c = 0; c < call.columns; ++c) {
    uint64_t x[kColumnWords] = {};
    __builtin_memcpy(x, call.inputs[c] + at, bytes);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint8_t *table = call.tables + (row + r) * call.row_bytes + c * kNibbleTableBytes;
      const uint8_t products[8] = {table[1], table[2], table[4], table[8], table[17], table[18], table[20], table[24]};
      for (size_t i = 0; i * 8 < bytes; ++i) sum[r][i] ^= multiply(products, x[i]);
    }
  }
  for (uint32_t r = 0; r < rows; ++r) __builtin_memcpy(call.outputs[row + r] + at, sum[r], bytes);
}

void apply_nibbles(const NibbleCall &call) {
  for (uint32_t row = 0; row < call.rows; row += kRowsAtOnce) {
    const uint32_t rows = call.rows - row < kRowsAtOnce ? call.rows - row : kRowsAtOnce;
    for (size_t at = 0; at < call.length_bytes; at += kColumnBytes)
      nibble_column(call, row, rows, at, call.length_bytes - at < kColumnBytes ? call.length_bytes - at : kColumnBytes);
  }
}

// Each byte times 2: the highest bits, moved out, come back as 0x1d (no carry: at most one of each byte is 1).
uint64_t twice(uint64_t x) { return ((x << 1) & ~kOnes) ^ ((x >> 7 & kOnes) * 0x1d); }

template <bool kWithQ>
void raid(const uint8_t *const *inputs, size_t offset_bytes, uint32_t count, uint8_t *const *outputs,
          size_t length_bytes, bool) {
  for (size_t at = 0; at < length_bytes; at += 8) {
    const size_t bytes = length_bytes - at < 8 ? length_bytes - at : 8;
    uint64_t p = 0, q = 0;
    for (uint32_t i = count; i-- != 0;) {
      const uint64_t word = load(inputs[i] + offset_bytes + at, bytes);
      p ^= word;
      q = twice(q) ^ word;
    }
    __builtin_memcpy(outputs[0] + at, &p, bytes);
    if constexpr (kWithQ) __builtin_memcpy(outputs[1] + at, &q, bytes);
  }
}

#include "cpu/kernels/vectors.inc"
// Over the macros above.
#include "cpu/kernels/transform.inc"

// A block of GF(2^16), and the values of a map at the 16 values of each nibble.
struct Wide {
  struct Block {
    uint8_t low[32], high[32];
  };
  struct Factor {
    uint16_t value[4][16];
  };
  static constexpr unsigned kFactorBytes = kNibbleMapBytes, kRowsAtOnce = 1, kBlocksAtOnce = 1;
  static void write_map(const uint16_t values[16], uint8_t *out) { write_nibble_map(values, out); }
  static Block zero() { return {}; }
  static Block load(const uint8_t *from) {
    Block block;
    __builtin_memcpy(&block, from, sizeof block);
    return block;
  }
  static void store(uint8_t *to, const Block &block) { __builtin_memcpy(to, &block, sizeof block); }
  static Block load_planes(const uint8_t *low, const uint8_t *high) {
    Block block;
    __builtin_memcpy(block.low, low, sizeof block.low);
    __builtin_memcpy(block.high, high, sizeof block.high);
    return block;
  }
  static void store_planes(uint8_t *low, uint8_t *high, const Block &block) {
    __builtin_memcpy(low, block.low, sizeof block.low);
    __builtin_memcpy(high, block.high, sizeof block.high);
  }
  static Block add(Block a, const Block &b) {
    for (unsigned i = 0; i < 32; ++i)
      a.low[i] = static_cast<uint8_t>(a.low[i] ^ b.low[i]), a.high[i] = static_cast<uint8_t>(a.high[i] ^ b.high[i]);
    return a;
  }
  static Block from_words(const Block &words) {
    uint8_t bytes[64];
    store(bytes, words);
    Block block;
    for (unsigned i = 0; i < 32; ++i) block.low[i] = bytes[2 * i], block.high[i] = bytes[2 * i + 1];
    return block;
  }
  static Block to_words(const Block &block) {
    uint8_t bytes[64];
    for (unsigned i = 0; i < 32; ++i) bytes[2 * i] = block.low[i], bytes[2 * i + 1] = block.high[i];
    return load(bytes);
  }
  static Factor factor(const uint8_t *low, const uint8_t *high) {
    Factor factor;
    for (unsigned n = 0; n < 4; ++n) {
      for (unsigned v = 0; v < 16; ++v) {
        const unsigned at = n * 32 + v;
        factor.value[n][v] = static_cast<uint16_t>((low[at] ^ high[at]) | (low[at + 16] ^ high[at + 16]) << 8);
      }
    }
    return factor;
  }
  static Block times(const Factor &factor, const Block &x) {
    Block product;
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned value = factor.value[0][x.low[i] & 15] ^ factor.value[1][x.low[i] >> 4] ^
                             factor.value[2][x.high[i] & 15] ^ factor.value[3][x.high[i] >> 4];
      product.low[i] = static_cast<uint8_t>(value);
      product.high[i] = static_cast<uint8_t>(value >> 8);
    }
    return product;
  }
};

#include "cpu/kernels/gf16.inc"

bool supported(const CpuFeatures &) { return true; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelScalar;
constinit const Kernel kKernelScalar = entry("scalar", "any CPU", kRowsAtOnce, kRowsAtOnce);

}  // namespace tandem::cpu
