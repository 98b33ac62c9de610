// SPDX-License-Identifier: Apache-2.0
// The independent slow reference: GF(2^8) by shift and XOR, matrices written as their definitions. It shares no code
// with core/, so equal results are evidence. Keep it slow and simple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::reference {

using Bytes = std::vector<std::uint8_t>;
using Rows = std::vector<Bytes>;  // a matrix, or shards

// a * b modulo x^8 + x^4 + x^3 + x^2 + 1.
inline std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  unsigned product = 0;
  for (unsigned shifted = a; b != 0; b >>= 1) {
    if (b & 1) product ^= shifted;
    shifted <<= 1;
    if (shifted & 0x100) shifted ^= 0x11d;
  }
  return static_cast<std::uint8_t>(product);
}

// base^exponent, 0^0 = 1.
std::uint8_t power(std::uint8_t base, unsigned exponent);

// The b with a * b = 1, by trying all; 0 for 0.
std::uint8_t inverse(std::uint8_t a);

// out[r] = XOR over c of coefficients[r * columns + c] * inputs[c], for any byte shards of one length.
Rows apply(const std::uint8_t *coefficients, std::size_t rows, std::size_t columns, const Rows &inputs,
           std::size_t shard_bytes);

Rows multiply(const Rows &a, const Rows &b);

// Row echelon form by plain elimination: how many rows are independent.
std::size_t rank(Rows matrix);

// The inverse by solving for it column by column; empty where singular.
Rows invert(const Rows &matrix);

// The m x k parity rows of a preset by its published definition, with explicit matrix inversions and polynomial
// divisions where the definition has them.
Rows parity_rows(const std::string &preset, unsigned k, unsigned m);

// Jerasure's fields GF(2^w), w = 4, 8 or 16, and its two Cauchy matrices over them ("jerasure-cauchy-orig", "-good").
using Numbers = std::vector<std::vector<unsigned>>;
unsigned multiply(unsigned word_bits, unsigned a, unsigned b);
unsigned inverse(unsigned word_bits, unsigned a);
Numbers jerasure_rows(const std::string &preset, unsigned word_bits, unsigned k, unsigned m);
std::size_t packet_rank(unsigned word_bits, Numbers matrix);

// rows x shards in Jerasure's layout, one element after another: bit i of an element is bit b of byte j of packet i.
Rows apply_packets(unsigned word_bits, std::size_t packet_bytes, const Numbers &rows, const Rows &shards);

}  // namespace tandem::reference
