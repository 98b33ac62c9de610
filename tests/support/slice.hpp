// SPDX-License-Identifier: Apache-2.0
// A random slice of many cases. If a test repeats one property over thousands of cases, each run tests another slice of
// them. `make test-all` (TANDEM_TEST_ALL=1) runs all cases. The seed is printed; TANDEM_TEST_SEED=N repeats a run.
// Sanitizers make code 5 to 20 times as slow, and find kinds of mistakes, so their slices are thinner.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/support/random.hpp"

namespace tandem::test {

// The seed of this process, printed by the first call.
inline std::uint64_t slice_seed() {
  static const std::uint64_t seed = [] {
    const char *given = std::getenv("TANDEM_TEST_SEED");
    const std::uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("slice seed %llu (TANDEM_TEST_SEED=%llu repeats this run, TANDEM_TEST_ALL=1 runs every case)\n",
                static_cast<unsigned long long>(chosen), static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

inline bool runs_every_case() {
  static const bool all = std::getenv("TANDEM_TEST_ALL") != nullptr;
  return all;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr unsigned kThinning = 4;
#else
inline constexpr unsigned kThinning = 1;
#endif

constexpr std::uint64_t thinned(std::uint64_t count) { return count / kThinning; }

// How many cases of a property to try: `usual`, or `all` in `make test-all`.
inline std::uint64_t rounds(std::uint64_t usual, std::uint64_t all) { return thinned(runs_every_case() ? all : usual); }

// Takes one case of `one_in` at random, all of them in `make test-all`.
class Slice {
 public:
  // salt: tests that go through the same cases take different ones.
  explicit Slice(unsigned one_in, std::uint64_t salt = 0)
      : one_in_(runs_every_case() ? 1 : one_in), random_(slice_seed() + one_in + salt) {}

  bool takes() { return one_in_ == 1 || random_.below(one_in_) == 0; }

  // For a loop over numbered cases: for (n = first(); n < end; n += step()).
  std::uint64_t first() { return one_in_ == 1 ? 0 : random_.below(one_in_); }
  std::uint64_t step() const { return one_in_; }

 private:
  unsigned one_in_;
  Random random_;
};

}  // namespace tandem::test
