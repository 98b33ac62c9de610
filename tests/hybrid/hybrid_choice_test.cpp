// SPDX-License-Identifier: Apache-2.0
// The choice before a run: the CPU alone, a device alone, or all together; and what is remembered for the next run.
#include "hybrid/policy/choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hybrid/policy/memory.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using core::SpeedEntry;
using core::TunedOperation;
using hybrid::choose;
using hybrid::kTogether;
using hybrid::Memory;
using hybrid::Speed;
using hybrid::Way;
using hybrid::WorkKind;
using hybrid::worth_from;

constexpr double kMiB = 1 << 20;

Way cpu(double bytes_per_second, unsigned lanes = 1) { return {Speed(0, bytes_per_second), {}, lanes}; }
Way device(double latency, double bytes_per_second) { return {Speed(latency, bytes_per_second), {}}; }
Way either_or(double latency, double bytes_per_second) { return {{}, Speed(latency, bytes_per_second), 1, false}; }

// ---- choose

TEST(HybridChoice, SmallRunsAreOfTheOneThatIsThroughFirstLargeOnesOfAll) {
  // A device as fast that starts 10 ms late: up to 10 MB the CPU is through before.
  const std::vector<Way> ways = {cpu(1e9), device(10e-3, 1e9)};
  EXPECT_EQ(choose(ways, 1), 0u);
  EXPECT_EQ(choose(ways, 9e6), 0u);
  EXPECT_EQ(choose(ways, 100e6), kTogether);
  EXPECT_EQ(choose(ways, 1e12), kTogether);
}

TEST(HybridChoice, LessThanFivePercentIsNoGain) {
  // Together t = (bytes + 1e7) / 2e9 against bytes / 1e9: 5 % less from 1e7 / 0.9 on.
  const std::vector<Way> ways = {cpu(1e9), device(10e-3, 1e9)};
  EXPECT_EQ(choose(ways, 10.5e6), 0u);
  EXPECT_EQ(choose(ways, 11.8e6), kTogether);
  EXPECT_NEAR(static_cast<double>(worth_from(ways)), 1e7 / 0.9, 10);
  // However large the run is: of a slow device the speed is what counts.
  EXPECT_EQ(choose(std::vector{cpu(1e9), device(0, 0.03e9)}, 1e12), 0u);
  EXPECT_EQ(choose(std::vector{cpu(1e9), device(0, 0.10e9)}, 1e12), kTogether);
}

TEST(HybridChoice, ADeviceAloneWhereTheCpuIsNoGain) {
  const std::vector<Way> ways = {cpu(1e9), device(1e-3, 100e9)};
  EXPECT_EQ(choose(ways, 0.5e6), 0u);
  EXPECT_EQ(choose(ways, 1e10), 1u) << "the CPU would bring 1 %";
  // Its own direct way may be faster than its part of a shared run.
  std::vector<Way> direct = {cpu(1e9), device(1e-3, 2e9)};
  EXPECT_EQ(choose(direct, 1e9), kTogether);
  direct[1].alone = Speed(1e-3, 5e9);
  EXPECT_EQ(choose(direct, 1e9), 1u);
  direct[1].alone = Speed(1e-3, 3e9);
  EXPECT_EQ(choose(direct, 1e9), 1u) << "the same as together: no gain";
  direct[1].alone = Speed(1e-3, 2.5e9);
  EXPECT_EQ(choose(direct, 1e9), kTogether);
}

TEST(HybridChoice, LanesCount) {
  const std::vector<Way> ways = {cpu(1e9, 16), device(10e-3, 4e9)};
  EXPECT_EQ(choose(ways, 100e6), 0u) << "16 lanes need 6 ms";
  EXPECT_EQ(choose(ways, 1e9), kTogether);
  EXPECT_EQ(choose(std::vector{cpu(1e9, 1), device(10e-3, 4e9)}, 100e6), kTogether);
  // The speed alone is of all lanes already.
  std::vector<Way> alone = {cpu(1e9, 16), {{}, Speed(0, 17e9), 16}};
  EXPECT_EQ(choose(alone, 1e6), kTogether);
  alone[1].may_share = false;
  EXPECT_EQ(choose(alone, 1e6), 1u);
}

TEST(HybridChoice, WhatIsNotKnownIsTriedTogether) {
  EXPECT_EQ(choose({}, 1e6), kTogether);
  EXPECT_EQ(choose(std::vector{Way{}}, 1e6), kTogether);
  EXPECT_EQ(choose(std::vector{cpu(1e9), Way{}}, 1), kTogether);
  EXPECT_EQ(choose(std::vector{Way{}, device(10, 1)}, 1), kTogether);
}

TEST(HybridChoice, WhatMayNotShareIsNeverTogether) {
  Way untried;
  untried.may_share = false;
  EXPECT_EQ(choose(std::vector{cpu(1e9), untried}, 1e12), 0u) << "it has to be tried before";
  // Either the one or the other, even if both together were better.
  for (const double bytes : {1.0, 1e6, 1e12}) {
    EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(0, 0.9e9)}, bytes), 0u);
    EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(0, 1.1e9)}, bytes), 1u);
  }
  EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(1e-3, 3e9)}, 1e6), 0u);
  EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(1e-3, 3e9)}, 1e8), 1u);
  // The others share a run if that is better than it alone.
  EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(0, 1.5e9), device(0, 1e9)}, 1e9), kTogether);
  EXPECT_EQ(choose(std::vector{cpu(1e9), either_or(0, 3e9), device(0, 1e9)}, 1e9), 1u);
}

// ---- trial_bytes

// A run takes 20 microseconds; the other member would take 0.5 ms for any part of it. And the other way round: the
// other one is slow, so it does a part. All trials together cost 1 % of the time of the runs, and none comes too late.
TEST(HybridChoice, TrialsCostOnePercentOfTheTime) {
  struct Case {
    Way way;
    double bytes, run_seconds;
  };
  for (const Case &each : {Case{either_or(0.5e-3, 20e9), 1.5e6, 20e-6}, Case{either_or(0, 0.5e9), 23e6, 1e-3},
                           Case{either_or(1e-3, 1e9), 23e6, 1e-3}, Case{either_or(0, 1e9), 375e6, 0.25},
                           Case{device(1e-3, 1e9), 23e6, 1e-3}}) {
    double total = 0, trials = 0, since = 0;
    for (int run = 0; run < 100'000; ++run) {
      const double part = hybrid::trial_bytes(each.way, each.bytes, each.run_seconds, since);
      if (part > 0) {
        EXPECT_LE(part, each.bytes);
        EXPECT_LE(alone_seconds(each.way, part),
                  2.1 * std::max(std::min(each.run_seconds, 10e-3), alone_seconds(each.way, 0)))
            << "one call does not wait long";
        trials += alone_seconds(each.way, part);
        since = 0;
      }
      total += each.run_seconds;
      since += each.run_seconds;
    }
    EXPECT_LE(trials, 0.0101 * total);
    EXPECT_GE(trials, 0.009 * total);
  }
}

// ---- worth_from

TEST(HybridChoice, WorthFromIsWhereTheChoiceChanges) {
  Random random(77);
  unsigned never = 0, some = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<Way> ways = {cpu(std::pow(10, 8 + static_cast<double>(random.below(3000)) / 1000),
                                 static_cast<unsigned>(random.between(1, 128)))};
    for (std::uint64_t n = random.between(1, 3); n > 0; --n) {
      const double latency = std::pow(10, -6 + static_cast<double>(random.below(4000)) / 1000);
      const double speed = std::pow(10, 7 + static_cast<double>(random.below(4000)) / 1000);
      ways.push_back(random.chance(20) ? either_or(latency, speed) : device(latency, speed));
    }
    const std::uint64_t from = worth_from(ways);
    if (from == UINT64_MAX) {
      ++never;
      for (double bytes = 1; bytes < 1e15; bytes *= 7) ASSERT_EQ(choose(ways, bytes), 0u) << "machine " << i;
      continue;
    }
    ++some;
    const double at = static_cast<double>(from);
    for (double bytes = at; bytes < 1e15; bytes *= 1.7) ASSERT_NE(choose(ways, bytes), 0u) << "machine " << i;
    for (double bytes = at - 1; bytes > 1; bytes /= 1.7) ASSERT_EQ(choose(ways, bytes), 0u) << "machine " << i;
    // A faster device, or one that answers sooner, is worth its while no later.
    std::vector<Way> better = ways;
    for (std::size_t w = 1; w < better.size(); ++w) {
      Speed &speed = better[w].may_share ? better[w].together : better[w].alone;
      speed = Speed(speed.latency_seconds() / 2, speed.bytes_per_second() * 2);
    }
    ASSERT_LE(worth_from(better), from + 1) << "machine " << i;
  }
  EXPECT_GT(never, 100u);
  EXPECT_GT(some, 1000u);
}

TEST(HybridChoice, WorthFromOfThoseThatNeverOrAlwaysAre) {
  EXPECT_EQ(worth_from(std::vector{cpu(1e9)}), UINT64_MAX);
  EXPECT_EQ(worth_from(std::vector{cpu(1e9), either_or(1e-3, 0.5e9)}), UINT64_MAX);
  EXPECT_LE(worth_from(std::vector{cpu(1e9), Way{}}), 1u) << "what is not known has to be tried";
}

// ---- Memory

constexpr WorkKind kKind{Mode::assign, 10, 4};
constexpr WorkKind kOther{Mode::compare, 10, 4};

TEST(HybridChoiceMemory, KeepsByMemberAndKind) {
  Memory memory;
  EXPECT_FALSE(memory.way(0, kKind).is_seen());
  memory.keep(0, kKind, Speed(1e-3, 2e9));
  EXPECT_NEAR(memory.way(0, kKind).together.bytes_per_second(), 2e9, 1);
  EXPECT_FALSE(memory.way(0, kKind).alone.is_seen());
  EXPECT_FALSE(memory.way(1, kKind).is_seen());
  EXPECT_FALSE(memory.way(0, kOther).is_seen());
  EXPECT_FALSE(memory.way(0, {Mode::assign, 4, 10}).is_seen());
  memory.keep(0, kKind, Speed());
  EXPECT_TRUE(memory.way(0, kKind).is_seen()) << "a run in which it did nothing teaches nothing";
  memory.keep(0, kKind, Speed(1e-3, 3e9));
  EXPECT_NEAR(memory.way(0, kKind).together.bytes_per_second(), 3e9, 1);
}

TEST(HybridChoiceMemory, RunsAloneAreLearnedFrom) {
  Memory memory;
  for (const double bytes : {kMiB, 64 * kMiB}) memory.ran_alone(1, kKind, bytes, 1e-3 + bytes / 4e9);
  const Way way = memory.way(1, kKind);
  EXPECT_TRUE(way.alone.is_known());
  EXPECT_NEAR(way.alone.latency_seconds(), 1e-3, 1e-9);
  EXPECT_NEAR(way.alone.bytes_per_second(), 4e9, 1e3);
  EXPECT_FALSE(way.together.is_seen());
  memory.keep(1, kKind, Speed(0, 1e9));
  memory.forget_alone(1, kKind);
  EXPECT_FALSE(memory.way(1, kKind).alone.is_seen());
  EXPECT_TRUE(memory.way(1, kKind).together.is_seen());
}

// Some other program may have had the cores.
TEST(HybridChoiceMemory, OneSlowRunDoesNotCount) {
  Memory memory;
  const auto run = [&](double factor) { memory.ran_alone(0, kKind, kMiB, factor * 1e-3); };
  const auto expected = [&] { return memory.way(0, kKind).alone.seconds_for(kMiB); };
  memory.ran_alone(0, kKind, kMiB / 8, 0.2e-3);
  for (int i = 0; i < 3; ++i) run(1);
  const double before = expected();
  for (int i = 0; i < 5; ++i) {
    run(10);
    EXPECT_NEAR(expected(), before, 1e-9);
    run(1);
    EXPECT_NEAR(expected(), 1e-3, 0.1e-3);
  }
  run(10);
  run(10);
  EXPECT_GT(expected(), 5e-3) << "twice in a row is no chance";
  run(1);
  EXPECT_LT(expected(), 2e-3) << "a fast run counts at once";
}

TEST(HybridChoiceMemory, CountsTheTimeWithoutAPart) {
  Memory memory;
  EXPECT_EQ(memory.idle_seconds(0, kKind), 0);
  memory.add_run(kKind, 2);
  memory.add_run(kOther, 100);
  EXPECT_EQ(memory.idle_seconds(0, kKind), 2);
  memory.took_part(0, kKind);
  memory.add_run(kKind, 3);
  EXPECT_EQ(memory.idle_seconds(0, kKind), 3);
  EXPECT_EQ(memory.idle_seconds(1, kKind), 5);
  EXPECT_FALSE(memory.way(0, kKind).is_seen());
}

TEST(HybridChoiceMemory, OnlyWhatIsKnownIsLearned) {
  Memory memory;
  memory.ran_alone(0, kKind, kMiB, 1e-3);
  EXPECT_TRUE(memory.learned(0, "opencl:0:0", 1, false, {}).empty()) << "one size";
  memory.ran_alone(0, kKind, 64 * kMiB, 20e-3);
  EXPECT_EQ(memory.learned(0, "opencl:0:0", 1, false, {}).size(), 1u);
  EXPECT_TRUE(memory.learned(1, "cpu", 1, false, {}).empty()) << "of another member";
}

// An entry counts bytes of data, of one lane; a Speed those that are moved.
TEST(HybridChoiceMemory, EntriesCountDataOfOneLane) {
  Memory memory;
  memory.keep(2, kKind, Speed(1e-3, 1.4e9));
  for (const double bytes : {kMiB, 64 * kMiB}) memory.ran_alone(2, kKind, bytes, 2e-3 + bytes / 5.6e9);
  const std::vector<SpeedEntry> entries = memory.learned(2, "cuda:0", 2, false, {});
  ASSERT_EQ(entries.size(), 1u);
  const SpeedEntry &entry = entries.front();
  EXPECT_EQ(entry.worker, "cuda:0");
  EXPECT_EQ(entry.operation, TunedOperation::encode);
  EXPECT_EQ(entry.k, 10u);
  EXPECT_EQ(entry.m, 4u);
  EXPECT_EQ(entry.lanes, 2u);
  EXPECT_NEAR(entry.bytes_per_second, 1e9, 1e3);
  EXPECT_NEAR(entry.latency_seconds, 1e-3, 1e-9);
  EXPECT_NEAR(entry.alone_bytes_per_second, 2e9, 1e3) << "5.6 / 1.4, of each of two lanes";
  EXPECT_NEAR(entry.alone_latency_seconds, 2e-3, 1e-9);
}

TEST(HybridChoiceMemory, WhatWasLearnedIsRecalled) {
  for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare}) {
    const WorkKind kind{mode, 6, 3};
    Memory memory;
    memory.keep(0, kind, Speed(3e-4, 7e9));
    for (const double bytes : {kMiB, 64 * kMiB}) memory.ran_alone(0, kind, bytes, 2e-3 + bytes / 9e9);
    const std::vector<SpeedEntry> entries = memory.learned(0, "cuda:0", 3, false, {});
    ASSERT_EQ(entries.size(), 1u);
    Memory later;
    later.recall(5, entries.front());
    const Way way = later.way(5, kind);
    EXPECT_NEAR(way.together.latency_seconds(), 3e-4, 1e-9);
    EXPECT_NEAR(way.together.bytes_per_second(), 7e9, 1e3);
    EXPECT_NEAR(way.alone.latency_seconds(), 2e-3, 1e-9);
    EXPECT_NEAR(way.alone.bytes_per_second(), 9e9, 1e3);
    EXPECT_TRUE(later.learned(5, "cuda:0", 3, false, entries).empty()) << "nothing is new";
  }
  Memory memory;
  SpeedEntry entry;
  entry.k = 10;
  entry.m = 4;
  memory.recall(0, entry);
  EXPECT_FALSE(memory.way(0, kKind).is_seen()) << "0 means not known";
}

TEST(HybridChoiceMemory, LearnedIsWhatIsMoreThanATenthOff) {
  Memory memory;
  memory.keep(0, kKind, Speed(1e-3, 1.4e9));
  const std::vector<SpeedEntry> known = memory.learned(0, "cuda:0", 1, false, {});
  ASSERT_EQ(known.size(), 1u);
  const auto count = [&](double factor, const char *worker, const WorkKind &kind) {
    Memory next;
    next.keep(0, kind, Speed(1e-3, factor * 1.4e9));
    return next.learned(0, worker, 1, false, known).size();
  };
  for (const double factor : {0.95, 1.0, 1.05}) EXPECT_EQ(count(factor, "cuda:0", kKind), 0u) << factor;
  for (const double factor : {0.1, 0.85, 1.2, 10.0}) EXPECT_EQ(count(factor, "cuda:0", kKind), 1u) << factor;
  EXPECT_EQ(count(1, "cuda:1", kKind), 1u);
  EXPECT_EQ(count(1, "cuda:0", kOther), 1u);
  EXPECT_EQ(count(1, "cuda:0", {Mode::assign, 10, 3}), 1u);
  // What is new may be the speed alone.
  for (const double bytes : {kMiB, 64 * kMiB}) memory.ran_alone(0, kKind, bytes, 1e-3 + bytes / 9e9);
  EXPECT_EQ(memory.learned(0, "cuda:0", 1, false, known).size(), 1u);
}

TEST(HybridChoiceMemory, TextOfAKindIsRowsTimesColumns) { EXPECT_EQ(text_of(kKind), "assign 4x10"); }

}  // namespace
}  // namespace tandem::test
