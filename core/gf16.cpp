// SPDX-License-Identifier: Apache-2.0
#include "core/gf16.hpp"

#include <bit>
#include <memory>

#include "core/matrix.hpp"

namespace tandem::core::gf16 {
namespace {

constexpr std::array<std::uint16_t, 16> standard_basis() {
  std::array<std::uint16_t, 16> basis{};
  for (unsigned i = 0; i < 16; ++i) basis[i] = static_cast<std::uint16_t>(1u << i);
  return basis;
}

constexpr std::array<std::uint16_t, 16> kCantorBasis = {0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012,
                                                        0x6C98, 0x10D8, 0x6A72, 0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E};

// Walsh-Hadamard transform modulo 65535, in place.
void walsh_hadamard(std::vector<std::uint32_t> &values) {
  for (std::size_t half = 1; half < values.size(); half *= 2) {
    for (std::size_t block = 0; block < values.size(); block += 2 * half) {
      for (std::size_t i = block; i < block + half; ++i) {
        const std::uint32_t a = values[i], b = values[i + half];
        const std::uint32_t sum = a + b, difference = a + kOrder - b;
        values[i] = sum >= kOrder ? sum - kOrder : sum;
        values[i + half] = difference >= kOrder ? difference - kOrder : difference;
      }
    }
  }
}

// Below this many products the direct sums are faster.
constexpr std::uint64_t kFewProducts = std::uint64_t{1} << 22;

}  // namespace

Field::Field(unsigned polynomial, const std::array<std::uint16_t, 16> &basis) {
  // Powers of 2 and their logarithms in the standard basis, then renamed to coordinates.
  std::vector<std::uint16_t> log_of_element(kFieldSize);
  unsigned power = 1;
  for (unsigned i = 0; i < kOrder; ++i) {
    log_of_element[power] = static_cast<std::uint16_t>(i);
    power <<= 1;
    if (power & kFieldSize) power ^= polynomial;
  }
  unsigned element = 0;  // in the order of a Gray code, one basis element changes at a time
  log_[0] = 0;
  for (unsigned i = 1; i < kFieldSize; ++i) {
    element ^= basis[static_cast<unsigned>(std::countr_zero(i))];
    const auto coordinates = static_cast<std::uint16_t>(i ^ (i >> 1));
    log_[coordinates] = log_of_element[element];
    exp_[log_of_element[element]] = exp_[log_of_element[element] + kOrder] = coordinates;
  }
}

const Field &Field::made(std::atomic<const Field *> &field, unsigned polynomial,
                         const std::array<std::uint16_t, 16> &basis) {
  const Field *known = field.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  std::unique_ptr<const Field> own(new Field(polynomial, basis));
  return field.compare_exchange_strong(known, own.get(), std::memory_order_acq_rel) ? *own.release() : *known;
}

const Field &Field::words() {
  static constinit std::atomic<const Field *> field{nullptr};
  return made(field, 0x1100b, standard_basis());
}

const Field &Field::cantor() {
  static constinit std::atomic<const Field *> field{nullptr};
  return made(field, 0x1002d, kCantorBasis);
}

void multiply_add(const Field &field, std::span<std::uint16_t> target, std::uint16_t factor,
                  std::span<const std::uint16_t> source) noexcept {
  if (factor == 0) return;
  multiply_add_count() += target.size();
  constexpr std::size_t kFew = 512;  // for more than these, products of bytes first: two loads, which do not branch
  if (target.size() < kFew) {
    for (std::size_t i = 0; i < target.size(); ++i) target[i] ^= field.multiply(factor, source[i]);
    return;
  }
  std::array<std::uint16_t, 256> low, high;
  low[0] = high[0] = 0;
  for (unsigned bit = 1; bit < 256; bit *= 2) {
    const std::uint16_t of_low = field.multiply(factor, static_cast<std::uint16_t>(bit));
    const std::uint16_t of_high = field.multiply(factor, static_cast<std::uint16_t>(bit << 8));
    for (unsigned i = 0; i < bit; ++i) low[bit + i] = low[i] ^ of_low, high[bit + i] = high[i] ^ of_high;
  }
  for (std::size_t i = 0; i < target.size(); ++i) target[i] ^= low[source[i] & 255] ^ high[source[i] >> 8];
}

std::vector<std::uint16_t> log_ratios(const Field &field, std::span<const std::uint16_t> at,
                                      std::span<const std::uint16_t> plus, std::span<const std::uint16_t> minus) {
  std::vector<std::uint16_t> result(at.size());
  if (std::uint64_t{at.size()} * (plus.size() + minus.size()) < kFewProducts) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      std::uint64_t sum = 0;
      for (const std::uint16_t point : plus) sum += field.log(at[i] ^ point);
      for (const std::uint16_t point : minus) sum += kOrder - field.log(at[i] ^ point);
      result[i] = static_cast<std::uint16_t>(sum % kOrder);
    }
    return result;
  }
  std::vector<std::uint32_t> counts(kFieldSize), logs(kFieldSize);
  for (const std::uint16_t point : plus) counts[point] += 1;
  for (const std::uint16_t point : minus) counts[point] += kOrder - 1;
  for (unsigned i = 0; i < kFieldSize; ++i) counts[i] %= kOrder, logs[i] = field.log(static_cast<std::uint16_t>(i));
  walsh_hadamard(counts);
  walsh_hadamard(logs);
  for (unsigned i = 0; i < kFieldSize; ++i)
    counts[i] = static_cast<std::uint32_t>(std::uint64_t{counts[i]} * logs[i] % kOrder);
  walsh_hadamard(counts);  // its own inverse up to 65536, which is 1 modulo 65535
  for (std::size_t i = 0; i < at.size(); ++i) result[i] = static_cast<std::uint16_t>(counts[at[i]]);
  return result;
}

}  // namespace tandem::core::gf16
