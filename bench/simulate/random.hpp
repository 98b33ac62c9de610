// SPDX-License-Identifier: Apache-2.0
// The random numbers of simulations. They are the same everywhere; the distributions of <random> do not promise that.
#pragma once

#include <cstdint>

namespace tandem::bench {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 up to 1, without 1.
  double part() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double in(double low, double high) { return low + (high - low) * part(); }
  // Below `limit`, which is not 0. The bias is limit / 2^64.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

}  // namespace tandem::bench
