// SPDX-License-Identifier: Apache-2.0
// Arithmetic of GF(2^8) with polynomial 0x11d, where 2 generates the multiplicative group. For matrices and
// tests; bulk data goes through the kernels of cpu/ and the devices.
#pragma once

#include <array>
#include <cstdint>

namespace tandem::core::gf {

inline constexpr unsigned kFieldSize = 256, kPolynomial = 0x11d;

struct Tables {
  std::array<std::uint8_t, 510> exp;  // exp[i] = 2^i; all powers twice, so that a sum of two logarithms needs no modulo
  std::array<std::uint8_t, 256> log;  // log[exp[i]] = i for i < 255; log[0] = 0, so 0 drops out of a sum of logarithms
};

constexpr Tables make_tables() {
  Tables tables{};
  unsigned power = 1;
  for (unsigned i = 0; i < 255; ++i) {
    tables.exp[i] = tables.exp[i + 255] = static_cast<std::uint8_t>(power);
    tables.log[power] = static_cast<std::uint8_t>(i);
    power <<= 1;
    if (power & 0x100) power ^= kPolynomial;
  }
  return tables;
}

inline constexpr Tables kTables = make_tables();

// 2^i for sums of four logarithms.
constexpr std::array<std::uint8_t, 4 * 255> make_long_exp() {
  std::array<std::uint8_t, 4 * 255> exp{};
  for (unsigned i = 0; i < exp.size(); ++i) exp[i] = kTables.exp[i % 255];
  return exp;
}

inline constexpr auto kLongExp = make_long_exp();

constexpr std::uint8_t power_of_two(unsigned exponent) { return kTables.exp[exponent % 255]; }

constexpr std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  return a == 0 || b == 0 ? 0 : kTables.exp[kTables.log[a] + kTables.log[b]];
}

// 1/a; inverse(0) = 0, which callers must not rely on.
constexpr std::uint8_t inverse(std::uint8_t a) { return a == 0 ? 0 : kTables.exp[(255 - kTables.log[a]) % 255]; }

constexpr std::uint8_t divide(std::uint8_t a, std::uint8_t b) { return multiply(a, inverse(b)); }

// The field for templates; see gf16::Field.
struct Field {
  using Cell = std::uint8_t;
  static constexpr Cell multiply(Cell a, Cell b) { return gf::multiply(a, b); }
  static constexpr Cell inverse(Cell a) { return gf::inverse(a); }
};
inline constexpr Field kField{};

// base^exponent, with 0^0 = 1.
constexpr std::uint8_t power(std::uint8_t base, unsigned exponent) {
  if (exponent == 0) return 1;
  if (base == 0) return 0;
  return kTables.exp[(kTables.log[base] * (exponent % 255)) % 255];
}

// GF(2^4) with polynomial x^4 + x + 1 lies in GF(2^8): its linear algebra can be done here. The generator 2 of the
// small field becomes a root of its polynomial.
struct Subfield4 {
  static constexpr std::uint8_t kNone = 16;
  std::array<std::uint8_t, 16> element;  // of each number of GF(2^4)
  std::array<std::uint8_t, 256> number;  // back; kNone outside of GF(2^4)
};

constexpr Subfield4 make_subfield4() {
  std::uint8_t root = 2;
  while ((multiply(multiply(root, root), multiply(root, root)) ^ root ^ 1) != 0) ++root;
  Subfield4 field{};
  field.number.fill(Subfield4::kNone);
  for (unsigned number = 0; number < 16; ++number) {
    std::uint8_t element = 0;
    for (unsigned bit = 0; bit < 4; ++bit)
      if (number >> bit & 1) element ^= power(root, bit);
    field.element[number] = element;
    field.number[element] = static_cast<std::uint8_t>(number);
  }
  return field;
}

inline constexpr Subfield4 kSubfield4 = make_subfield4();

}  // namespace tandem::core::gf
