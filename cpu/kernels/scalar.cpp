// Any CPU with 64-bit words: eight products in one word (SWAR). A product by the constant c is
// XOR over bits b of x of (c * 2^b): isolate bit b of every byte, and multiply that word of zeros and ones by the byte
// c * 2^b, which cannot carry from one byte into the next.
#include "cpu/kernels/kernel.hpp"

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

size_t tables_bytes(uint32_t rows, uint32_t columns) { return size_t{8} * rows * columns; }

// Eight bytes a coefficient: c, c * 2, c * 4, ... c * 128.
void prepare(const uint8_t *coefficients, uint32_t rows, uint32_t columns, void *tables) {
  uint8_t *out = static_cast<uint8_t *>(tables);
  for (size_t i = 0; i < size_t{rows} * columns; ++i) {
    unsigned product = coefficients[i];
    for (int bit = 0; bit < 8; ++bit) {
      *out++ = static_cast<uint8_t>(product);
      product = (product << 1) ^ ((product >> 7) * 0x11d);
    }
  }
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

void raid(const RaidCall &call) {
  for (size_t at = 0; at < call.length_bytes; at += 8) {
    const size_t bytes = call.length_bytes - at < 8 ? call.length_bytes - at : 8;
    uint64_t p = 0, q = 0;
    for (uint32_t i = call.count; i-- != 0;) {
      const uint64_t word = load(call.inputs[i] + call.offset_bytes + at, bytes);
      p ^= word;
      q = twice(q) ^ word;
    }
    __builtin_memcpy(call.p + at, &p, bytes);
    if (call.q != nullptr) __builtin_memcpy(call.q + at, &q, bytes);
  }
}

bool supported(const CpuFeatures &) { return true; }

}  // namespace

extern const Kernel kKernelScalar;
const Kernel kKernelScalar = {"scalar", "any CPU",     supported, tables_bytes, prepare,
                              apply,    apply_nibbles, raid,      kRowsAtOnce};

}  // namespace tandem::cpu
