// SPDX-License-Identifier: Apache-2.0
#include "par2/crc.hpp"

#include <cstring>
#include <vector>

namespace tandem::par2 {

#ifdef TANDEM_PAR2_X86
extern const CrcKernel crc_sse4, crc_avx2, crc_avx512;
#endif

namespace {

using Table = std::array<std::uint32_t, 256>;

// tables[i][b]: a byte b with i bytes of zeros after it.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t value = b;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kCrcPolynomial : 0);
    tables[0][b] = value;
  }
  for (std::size_t i = 1; i < 8; ++i)
    for (std::size_t b = 0; b < 256; ++b) tables[i][b] = tables[i - 1][b] >> 8 ^ tables[0][tables[i - 1][b] & 0xff];
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

// Eight bytes at a time.
std::uint32_t advance(std::uint32_t value, const unsigned char *bytes, std::size_t count) {
  for (; count >= 8; bytes += 8, count -= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    word ^= value;
    value = 0;
    for (std::size_t i = 0; i < 8; ++i) value ^= kTables[7 - i][word >> 8 * i & 0xff];
  }
  for (; count != 0; ++bytes, --count) value = kTables[0][(value ^ *bytes) & 0xff] ^ value >> 8;
  return value;
}

std::vector<const CrcKernel *> kernels_of_cpu() {
  std::vector<const CrcKernel *> list;
#ifdef TANDEM_PAR2_X86
  if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f")) list.push_back(&crc_avx512);
  if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2")) list.push_back(&crc_avx2);
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) list.push_back(&crc_sse4);
#endif
  return list;
}

const std::vector<const CrcKernel *> &kernels() {
  // Never destroyed: threads may still hash when main returns.
  static const auto &list = *new const std::vector(kernels_of_cpu());
  return list;
}

std::span<const CrcKernel *const> &used() {
  static std::span<const CrcKernel *const> list = kernels();
  return list;
}

// a * b modulo the polynomial; bit 31 is x^0.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (a >> bit & 1) sum ^= b;
    b = b >> 1 ^ (b & 1 ? kCrcPolynomial : 0);
  }
  return sum;
}

// The register after `count` bytes of zeros: times x^(8 * count).
std::uint32_t after_zeros(std::uint32_t value, std::uint64_t count) {
  std::uint32_t power = 0x00800000;  // x^8
  for (; count != 0; count >>= 1, power = product(power, power))
    if (count & 1) value = product(value, power);
  return value;
}

}  // namespace

std::span<const CrcKernel *const> crc_kernels() { return kernels(); }
void force_crc_kernels(std::span<const CrcKernel *const> list) { used() = list; }

std::uint32_t crc32(std::uint32_t crc, const void *bytes, std::size_t count) {
  auto from = static_cast<const unsigned char *>(bytes);
  std::uint32_t value = ~crc;
  for (const CrcKernel *const kernel : used()) {
    const std::size_t blocks = count / kernel->block_bytes;
    if (blocks < 2) continue;
    unsigned char folded[16];
    kernel->fold(value, from, blocks, folded);
    value = advance(0, folded, sizeof folded);
    from += blocks * kernel->block_bytes;
    count -= blocks * kernel->block_bytes;
  }
  return ~advance(value, from, count);
}

std::uint32_t crc32_zeros(std::uint32_t crc, std::uint64_t count) { return ~after_zeros(~crc, count); }

RollingCrc::RollingCrc(std::uint64_t window) : steps_(kTables[0]), inverted_(~after_zeros(0xffffffff, window)) {
  for (std::size_t b = 0; b < 256; ++b) leaving_[b] = after_zeros(kTables[0][b], window);
}

}  // namespace tandem::par2
