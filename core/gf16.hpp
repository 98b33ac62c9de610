// SPDX-License-Identifier: Apache-2.0
// Arithmetic of GF(2^16) for matrices and set-up; bulk data goes through the kernels of cpu/. An element is a number of
// 16 bits. The basis decides which field element a number stands for, so there are two objects. words() is for formats
// that store polynomials modulo 0x1100b. cantor() is for Leopard, which stores coordinates.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::core::gf16 {

inline constexpr unsigned kFieldSize = 65536, kOrder = kFieldSize - 1;

class Field {
 public:
  using Cell = std::uint16_t;

  // Both are built by their first use, without a lock: a process that is forked meanwhile builds its own.
  // Polynomial x^16 + x^12 + x^3 + x + 1 (0x1100b), standard basis: PAR2, liberasurecode.
  static const Field &words();
  // Polynomial x^16 + x^5 + x^3 + x^2 + 1 (0x1002d) in coordinates of the Cantor basis b_0 = 1, b_i^2 + b_i = b_(i-1)
  // (Cantor 1989; Lin, Chung and Han 2014): Leopard. The subspace polynomial of {0 .. 2^l - 1} at x is x >> l there.
  static const Field &cantor();

  std::uint16_t multiply(std::uint16_t a, std::uint16_t b) const noexcept {
    return a == 0 || b == 0 ? 0 : exp_[unsigned{log_[a]} + log_[b]];
  }
  // 1/a; inverse(0) = 0, which callers must not rely on.
  std::uint16_t inverse(std::uint16_t a) const noexcept { return a == 0 ? 0 : exp_[kOrder - log_[a]]; }
  std::uint16_t divide(std::uint16_t a, std::uint16_t b) const noexcept { return multiply(a, inverse(b)); }
  std::uint16_t exp(std::uint64_t exponent) const noexcept { return exp_[exponent % kOrder]; }
  unsigned log(std::uint16_t a) const noexcept { return log_[a]; }  // log(0) = 0, so that it drops out of products

 private:
  Field(unsigned polynomial, const std::array<std::uint16_t, 16> &basis);
  static const Field &made(std::atomic<const Field *> &field, unsigned polynomial,
                           const std::array<std::uint16_t, 16> &basis);

  std::array<std::uint16_t, 2 * kOrder> exp_;  // all powers twice, so that a sum of two logarithms needs no modulo
  std::array<std::uint16_t, kFieldSize> log_;
};

// target ^= factor * source; the spans have one length.
void multiply_add(const Field &field, std::span<std::uint16_t> target, std::uint16_t factor,
                  std::span<const std::uint16_t> source) noexcept;

// For every point v of `at`: sum over `plus` of log(v ^ p) minus sum over `minus` of log(v ^ p), modulo 65535; log(0)
// counts as 0. Directly, or for many points by Walsh-Hadamard transforms: the sums are convolutions over XOR.
std::vector<std::uint16_t> log_ratios(const Field &field, std::span<const std::uint16_t> at,
                                      std::span<const std::uint16_t> plus, std::span<const std::uint16_t> minus);

}  // namespace tandem::core::gf16
