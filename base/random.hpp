// SPDX-License-Identifier: Apache-2.0
// Repeatable random numbers, for simulators and tests. They are the same everywhere; the distributions of <random> do
// not promise that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::base {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014): one state word, every
// seed is a good one.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  // 0 .. end - 1; the bias of the remainder does not matter here.
  std::uint64_t below(std::uint64_t end) { return next() % end; }
  std::uint64_t between(std::uint64_t first, std::uint64_t last) { return first + below(last - first + 1); }
  // 0 up to 1, without 1.
  double part() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double in(double low, double high) { return low + (high - low) * part(); }
  bool chance(unsigned percent) { return below(100) < percent; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(next()); }

  // Not instrumented: under the thread sanitizer it takes longer than what the tests test.
  __attribute__((no_sanitize("thread"))) void fill(void *bytes, std::size_t count) {
    auto *out = static_cast<std::uint8_t *>(bytes);
    for (std::size_t i = 0; i < count; i += 8) {
      std::uint64_t word = next();
      for (std::size_t j = i; j < count && j < i + 8; ++j, word >>= 8) out[j] = static_cast<std::uint8_t>(word);
    }
  }

  std::vector<std::uint8_t> bytes(std::size_t count) {
    std::vector<std::uint8_t> out(count);
    fill(out.data(), count);
    return out;
  }

  // `count` different numbers out of 0 .. end - 1, in random order.
  std::vector<unsigned> pick(unsigned count, unsigned end) {
    std::vector<unsigned> all(end);
    for (unsigned i = 0; i < end; ++i) all[i] = i;
    for (unsigned i = 0; i < count; ++i) {
      const auto j = static_cast<unsigned>(between(i, end - 1));
      const unsigned taken = all[j];
      all[j] = all[i];
      all[i] = taken;
    }
    all.resize(count);
    return all;
  }

 private:
  std::uint64_t state_;
};

}  // namespace tandem::base
