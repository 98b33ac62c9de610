// SPDX-License-Identifier: Apache-2.0
// The subspaces {0, .., 2^i - 1} of GF(2^8) as sets of points: their polynomials and what a transform of a group of 2^i
// points multiplies by (docs/internals/TRANSFORM.md).
#pragma once

#include <array>
#include <cstdint>

#include "core/gf.hpp"

namespace tandem::core::gf {

class Subspaces {
 public:
  static constexpr unsigned kLevels = 8;

  constexpr Subspaces() {
    std::uint8_t constant = 1;
    for (unsigned i = 0; i < kLevels; ++i) {
      sigma_[i] = polynomial(i, static_cast<std::uint8_t>(1 << i));
      constant_[i] = constant;
      constant = multiply(constant, sigma_[i]);
    }
  }

  // s_level(x) = product over the points p of the subspace of (x + p). Linear in x.
  constexpr std::uint8_t polynomial(unsigned level, std::uint8_t x) const {
    std::uint8_t value = x;
    for (unsigned i = 0; i < level; ++i) value = multiply(value, value ^ sigma_[i]);
    return value;
  }

  // The factor of the butterflies between lanes that are 2^level apart, at the point x of the first lane.
  constexpr std::uint8_t twiddle(unsigned level, std::uint8_t x) const {
    return divide(polynomial(level, x), sigma_[level]);
  }

  // The contribution of a group of 2^level points to a group at `distance`, the XOR of their first points (not 0).
  constexpr std::uint8_t between_groups(unsigned level, std::uint8_t distance) const {
    return divide(constant_[level], polynomial(level, distance));
  }

 private:
  std::array<std::uint8_t, kLevels> sigma_{};     // s_i(2^i)
  std::array<std::uint8_t, kLevels> constant_{};  // the product of the sigmas below this level
};

inline constexpr Subspaces kSubspaces;

}  // namespace tandem::core::gf
