// SPDX-License-Identifier: Apache-2.0
// The random numbers of simulations. They are the same everywhere; the distributions of <random> do not promise that.
#pragma once

#include <cstdint>

namespace tandem::hybrid {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  double in(double low, double high) {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return low + (high - low) * (static_cast<double>(z >> 11) * 0x1.0p-53);
  }

 private:
  std::uint64_t state_;
};

}  // namespace tandem::hybrid
