// SPDX-License-Identifier: Apache-2.0
// Learns the time of a worker's tasks from its finished tasks.
#include "hybrid/policy/speed.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::Speed;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A worker as it really is.
struct Worker {
  double latency_seconds, bytes_per_second, jitter = 0;

  void does(Speed &speed, double bytes, Random &random) const {
    const double part = static_cast<double>(random.next() >> 11) * 0x1.0p-52 - 1;
    speed.observe(bytes, (latency_seconds + bytes / bytes_per_second) * (1 + jitter * part));
  }
  void does(Speed &speed, double bytes) const { speed.observe(bytes, latency_seconds + bytes / bytes_per_second); }
};

// In parts of the true value.
double error_of(double value, double truth) { return std::abs(value / truth - 1); }

TEST(HybridSpeed, TwoSizesTellLatencyAndSpeedApart) {
  for (const double latency : {0.0, 1e-5, 1e-3}) {
    Speed speed;
    const Worker worker{latency, 2e9};
    worker.does(speed, 1e6);
    EXPECT_TRUE(speed.is_seen());
    EXPECT_FALSE(speed.is_known());
    worker.does(speed, 16e6);
    EXPECT_TRUE(speed.is_known());
    EXPECT_NEAR(speed.latency_seconds(), latency, 1e-12);
    EXPECT_NEAR(speed.bytes_per_second(), 2e9, 1);
    EXPECT_NEAR(speed.seconds_for(64e6), latency + 64e6 / 2e9, 1e-9);
  }
}

TEST(HybridSpeed, OneSizeGivesASpeedWithoutLatency) {
  Speed speed;
  for (int i = 0; i < 50; ++i) {
    Worker{1e-3, 1e9}.does(speed, 1e6);
    EXPECT_FALSE(speed.is_known());
    EXPECT_EQ(speed.latency_seconds(), 0);
    EXPECT_NEAR(speed.bytes_per_second(), 0.5e9, 1);
    EXPECT_NEAR(speed.seconds_for(1e6), 2e-3, 1e-12);
  }
}

// A line through sizes that are close to each other says nothing: a little noise would turn its latency around.
TEST(HybridSpeed, TwoSizesHaveToBeFarApart) {
  for (const double ratio : {1.1, 1.3, 1.5, 1.8}) {
    Speed speed;
    Worker{1e-3, 1e9}.does(speed, 1e6);
    Worker{1e-3, 1e9}.does(speed, ratio * 1e6);
    EXPECT_FALSE(speed.is_known()) << ratio;
  }
  for (const double ratio : {3, 4, 64}) {
    Speed speed;
    Worker{1e-3, 1e9}.does(speed, 1e6);
    Worker{1e-3, 1e9}.does(speed, ratio * 1e6);
    EXPECT_TRUE(speed.is_known()) << ratio;
  }
}

// Times may fall where sizes rise. The speed stays one, and the latency is at most nearly all of the shortest time.
TEST(HybridSpeed, ALatencyIsLessThanTheShortestTask) {
  Speed falling;
  falling.observe(1e6, 1);
  falling.observe(4e6, 0.9);
  EXPECT_TRUE(falling.is_known());
  EXPECT_LT(falling.latency_seconds(), 0.9);
  EXPECT_GT(falling.latency_seconds(), 0.75);
  EXPECT_GT(falling.bytes_per_second(), 0);
  EXPECT_TRUE(std::isfinite(falling.bytes_per_second()));
  Speed steep;  // more than in proportion: there is no latency below zero
  steep.observe(1e6, 1);
  steep.observe(4e6, 8);
  EXPECT_EQ(steep.latency_seconds(), 0);
  EXPECT_GT(steep.bytes_per_second(), 4e6 / 8 * 0.5);
}

TEST(HybridSpeed, JitterIsAveraged) {
  Random random(7);
  const Worker worker{1e-3, 1e9, 0.2};
  for (int run = 0; run < 200; ++run) {
    Speed speed;
    for (int i = 0; i < 40; ++i) worker.does(speed, i % 2 == 0 ? 0.5e6 : 16e6, random);
    EXPECT_TRUE(speed.is_known());
    EXPECT_LT(error_of(speed.bytes_per_second(), 1e9), 0.2) << "run " << run;
    EXPECT_LT(error_of(speed.latency_seconds(), 1e-3), 0.35) << "run " << run;
    EXPECT_GT(speed.uncertainty(), 0.04) << "run " << run;
    EXPECT_LT(speed.uncertainty(), 0.25) << "run " << run;
  }
}

TEST(HybridSpeed, UncertaintyFallsWhereTasksTakeAsLongAsExpected) {
  Speed speed;
  const Worker worker{1e-4, 1e9};
  worker.does(speed, 1e6);
  worker.does(speed, 8e6);
  EXPECT_GE(speed.uncertainty(), 0.2) << "nothing was compared yet";
  EXPECT_LE(speed.uncertainty(), 0.5);
  double before = speed.uncertainty();
  for (int i = 0; i < 60; ++i) {
    worker.does(speed, i % 2 == 0 ? 1e6 : 8e6);
    EXPECT_LT(speed.uncertainty(), before);
    before = speed.uncertainty();
  }
  EXPECT_LT(before, 0.02);
}

// A change too small to be a surprise is followed as the older tasks are forgotten: not at once, and not for ever.
TEST(HybridSpeed, OlderTasksWeighLess) {
  Speed speed;
  for (int i = 0; i < 100; ++i) Worker{0, 1e9}.does(speed, i % 2 == 0 ? 1e6 : 8e6);
  const Worker faster{0, 1.5e9};
  int tasks = 0;
  for (; error_of(speed.bytes_per_second(), 1.5e9) > 0.1; ++tasks) faster.does(speed, tasks % 2 == 0 ? 1e6 : 8e6);
  EXPECT_GE(tasks, 4) << "one odd task is not believed";
  EXPECT_LE(tasks, 25);
}

// Long tasks do not drown short ones: errors are parts of the time.
TEST(HybridSpeed, ShortTasksCountAsMuchAsLongOnes) {
  Random random(8);
  Speed speed;
  for (int i = 0; i < 40; ++i) Worker{1e-5, 1e9, 0.05}.does(speed, i % 2 == 0 ? 1e4 : 1e8, random);
  EXPECT_LT(error_of(speed.seconds_for(1e4), 2e-5), 0.1);
  EXPECT_LT(error_of(speed.seconds_for(1e8), 0.1), 0.1);
}

TEST(HybridSpeed, AWorkerThatBecomesTenTimesSlowerOrFasterIsBelievedAtOnce) {
  for (const double factor : {0.1, 10.0}) {
    Speed speed;
    const Worker before{1e-4, 1e9}, after{1e-4 / factor, 1e9 * factor};
    for (int i = 0; i < 100; ++i) before.does(speed, i % 2 == 0 ? 1e6 : 8e6);
    after.does(speed, 4e6);
    EXPECT_LT(error_of(speed.bytes_per_second(), after.bytes_per_second), 1e-6);
    EXPECT_LT(error_of(speed.latency_seconds(), after.latency_seconds), 1e-6);
    // The latency need not change with it.
    const Worker other{1e-4, 1e9 * factor};
    for (const double bytes : {2e7, 2e8}) other.does(speed, bytes);
    EXPECT_LT(error_of(speed.seconds_for(1e8), 1e-4 + 1e8 / other.bytes_per_second), 0.1);
  }
}

TEST(HybridSpeed, ASurpriseIsABitMoreThanNoise) {
  for (const double factor : {1.5, 1 / 1.5}) {
    Speed speed;
    for (int i = 0; i < 100; ++i) Worker{0, 1e9}.does(speed, i % 2 == 0 ? 1e6 : 8e6);
    speed.observe(4e6, factor * 4e-3);
    EXPECT_LT(error_of(speed.bytes_per_second(), 1e9), 0.2) << factor << " times as long";
  }
  for (const double factor : {3.0, 1 / 3.0}) {
    Speed speed;
    for (int i = 0; i < 100; ++i) Worker{0, 1e9}.does(speed, i % 2 == 0 ? 1e6 : 8e6);
    speed.observe(4e6, factor * 4e-3);
    EXPECT_LT(error_of(speed.bytes_per_second(), 1e9 / factor), 1e-6) << factor << " times as long";
  }
}

// A short task that took long says that something came between, not that all is slow.
TEST(HybridSpeed, ASurpriseOfNothingButLatencyDoesNotScaleTheSpeed) {
  Speed speed;
  const Worker worker{1e-3, 1e9};
  for (int i = 0; i < 100; ++i) worker.does(speed, i % 2 == 0 ? 1e6 : 16e6);
  const double uncertainty = speed.uncertainty();
  speed.observe(0.5e6, 20e-3);
  EXPECT_LT(error_of(speed.bytes_per_second(), 1e9), 0.05);
  EXPECT_LT(error_of(speed.latency_seconds(), 1e-3), 0.05);
  EXPECT_EQ(speed.uncertainty(), uncertainty);
  // The same in a task that is mostly bytes.
  speed.observe(2e6, 60e-3);
  EXPECT_LT(error_of(speed.bytes_per_second(), 1e9 / 20), 0.1);
}

// The same where the latency is short: less than a quarter of the mean size does not tell that all is slow.
TEST(HybridSpeed, ASurpriseOfATaskFarSmallerThanTheOthersDoesNotScaleTheSpeed) {
  constexpr double kMean = 9.4e6;  // a task weighs 1 / seconds^2
  for (const double part : {0.05, 0.2, 0.3, 0.8}) {
    Speed speed;
    const Worker worker{1e-6, 1e9};
    for (int i = 0; i < 100; ++i) worker.does(speed, i % 2 == 0 ? 8e6 : 32e6);
    const double mean_seconds = kMean / 1e9;
    speed.observe(part * kMean, 3 * part * mean_seconds);
    const bool is_scaled = error_of(speed.bytes_per_second(), 1e9 / 3) < 0.01;
    EXPECT_EQ(is_scaled, part > 0.25) << part << ": " << speed.bytes_per_second();
  }
}

TEST(HybridSpeed, AMemoryIsWhatWasRemembered) {
  for (const double latency : {0.0, 1e-7, 1e-4, 1.0}) {
    for (const double bytes_per_second : {1.0, 1e6, 4e10}) {
      const Speed speed(latency, bytes_per_second);
      EXPECT_TRUE(speed.is_seen());
      EXPECT_TRUE(speed.is_known());
      EXPECT_NEAR(speed.latency_seconds(), latency, 1e-9 * latency);
      EXPECT_NEAR(speed.bytes_per_second(), bytes_per_second, 1e-9 * bytes_per_second);
      EXPECT_GE(speed.uncertainty(), 0.2);
      EXPECT_LE(speed.uncertainty(), 0.5);
      EXPECT_TRUE(std::isinf(speed.most_bytes())) << "it may take any amount at once";
    }
  }
}

// However wrong: two pieces that move bytes for longer than they wait, and the third is expected to take what it takes.
TEST(HybridSpeed, AWrongMemoryIsOverruledWithinTwoPieces) {
  for (const double latency : {1e-5, 1e-4, 1e-3}) {
    for (const double bytes_per_second : {1e7, 1e8, 1e9, 1e10, 5e10}) {
      for (const double true_latency : {1e-5, 1e-4, 1e-3}) {
        const Worker worker{true_latency, 1e9};
        Speed speed(latency, bytes_per_second);
        for (const double bytes : {60e6, 100e6}) worker.does(speed, bytes);
        EXPECT_LT(error_of(speed.seconds_for(80e6), true_latency + 80e6 / 1e9), 0.1)
            << "remembered " << latency << " s and " << bytes_per_second << " B/s; it is " << true_latency << " s";
      }
    }
  }
}

// Growth is limited by the largest task so far.
TEST(HybridSpeed, InputWithoutMeaningIsIgnored) {
  Speed speed;
  const auto nonsense = [&] {
    for (const double bad : {0.0, -0.0, -1.0, -std::numeric_limits<double>::infinity(), kNaN}) {
      speed.observe(bad, 1);
      speed.observe(1e6, bad);
      speed.observe(bad, bad);
    }
  };
  nonsense();
  EXPECT_FALSE(speed.is_seen());
  EXPECT_EQ(speed.most_bytes(), 0);
  for (const double bytes : {1e6, 8e6, 2e6}) Worker{1e-4, 1e9}.does(speed, bytes);
  const double uncertainty = speed.uncertainty();
  nonsense();
  EXPECT_NEAR(speed.bytes_per_second(), 1e9, 1);
  EXPECT_NEAR(speed.latency_seconds(), 1e-4, 1e-12);
  EXPECT_EQ(speed.uncertainty(), uncertainty);
  EXPECT_EQ(speed.most_bytes(), 8e6);
  for (const double bad : {0.0, -1.0, kNaN}) EXPECT_FALSE(Speed(1e-4, bad).is_seen()) << bad;
}

}  // namespace
}  // namespace tandem::test
