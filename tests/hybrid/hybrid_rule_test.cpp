// SPDX-License-Identifier: Apache-2.0
// The rule that shares a run: its closed forms, its promises on random machines, and the purpose of each constant.
#include "hybrid/policy/rule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::back_piece;
using hybrid::Candidate;
using hybrid::DeviceLane;
using hybrid::first_piece_bytes;
using hybrid::front_chunk;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMiB = 1 << 20;

double finish_of(const std::vector<Candidate> &list, double bytes) {
  return hybrid::finish_seconds(
      [&](auto body) {
        for (const Candidate &each : list) body(each);
      },
      bytes);
}

double between(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.next() >> 11) * 0x1.0p-53;
}

struct Machine {
  std::vector<Candidate> candidates;
  double bytes = 0;
};

// Speeds over 1:1000, runs from less than the slowest's latency to thousands of times the fastest's.
Machine random_machine(Random &random) {
  Machine machine;
  double speed = 0;
  for (std::uint64_t n = random.between(1, 20); n > 0; --n) {
    Candidate each{1e6 * std::pow(10, between(random, 0, 3))};
    each.start_seconds = random.chance(30) ? 0 : std::pow(10, between(random, -6, 1));
    speed += each.bytes_per_second;
    machine.candidates.push_back(each);
  }
  machine.bytes = speed * std::pow(10, between(random, -5, 2));
  return machine;
}

// ---- finish_seconds

TEST(HybridRule, FinishOfOneIsItsStartAndItsWork) {
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}}, 5e6), 5);
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0.25}}, 5e6), 5.25);
  EXPECT_EQ(finish_of({{1e6, 0}}, 0), 0);
}

TEST(HybridRule, FinishOfSeveralThatStartInTime) {
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {3e6, 0}}, 8e6), 2);
  // The second one does (t - 1) * 3e6 of it.
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {3e6, 1}}, 9e6), 3);
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0.5}, {3e6, 1}, {4e6, 2}}, 20.5e6), 4);
}

TEST(HybridRule, WhatWouldStartAfterTheEndDoesNotCount) {
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {1e9, 2.5}}, 2e6), 2);
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {1e9, 2}}, 2e6), 2) << "at the very end is too late";
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {1e9, kNever}}, 2e6), 2);
  // Without the third one all are through before the second one starts.
  EXPECT_DOUBLE_EQ(finish_of({{1e6, 0}, {1e6, 1.5}, {1e7, 10}}, 1e6), 1);
  // The order does not matter.
  EXPECT_DOUBLE_EQ(finish_of({{1e7, 10}, {1e6, 1.5}, {1e6, 0}}, 1e6), 1);
}

TEST(HybridRule, WithoutCandidatesThereIsNoFinish) {
  EXPECT_EQ(finish_of({}, 1), kNever);
  EXPECT_EQ(finish_of({{0, 0}}, 1), kNever);
  EXPECT_EQ(finish_of({{1e6, kNever}}, 1), kNever);
}

TEST(HybridRule, FinishIsWhereTheFairSharesAreTheWork) {
  Random random(21);
  for (int i = 0; i < 20'000; ++i) {
    const Machine machine = random_machine(random);
    const double finish = finish_of(machine.candidates, machine.bytes);
    double shares = 0;
    for (const Candidate &each : machine.candidates)
      shares += std::max(finish - each.start_seconds, 0.0) * each.bytes_per_second;
    ASSERT_NEAR(shares / machine.bytes, 1, 1e-6) << "machine " << i;
  }
}

// ---- front_chunk

TEST(HybridRule, AFrontChunkIsAPartOfTheTimeThatIsLeft) {
  EXPECT_DOUBLE_EQ(front_chunk(1e9, 1e-3, kNever), 0.25e6);
  EXPECT_DOUBLE_EQ(front_chunk(2e9, 1e-3, kNever), 0.5e6);
  EXPECT_DOUBLE_EQ(front_chunk(1e9, 1e-3, 1e-4), 0.1e6) << "it should not take longer than the caller says";
  EXPECT_GT(front_chunk(1e9, 1e-3, 0), 0) << "or a run hangs";
  EXPECT_TRUE(std::isfinite(front_chunk(1e9, kNever, kNever)));
}

// A lane that suddenly is four times slower still ends in time, and few chunks do the work.
TEST(HybridRule, PartOfRest) {
  EXPECT_LE(front_chunk(1e9, 1e-3, kNever) / (1e9 / 4), 1e-3);
  unsigned chunks = 0;
  for (double left = 4e-3; left > 20e-6; ++chunks) left -= front_chunk(1e9, left, kNever) / 1e9;
  EXPECT_LE(chunks, 20u) << "from 4 ms to 20 us";
}

// To take a chunk and to start its kernel costs about 50 ns: a percent. The last ones end within 10 us of each other.
TEST(HybridRule, LeastChunkSeconds) {
  for (const double speed : {1e8, 5e9}) {
    const double seconds = front_chunk(speed, 1e-9, kNever) / speed;
    EXPECT_GE(seconds, 100 * 30e-9);
    EXPECT_LE(seconds, 10e-6);
  }
}

// A lowered budget waits for the chunks that run. Longer runs are not made of more and more chunks than that needs.
TEST(HybridRule, MostChunkSeconds) {
  for (const double finish : {0.1, 10.0, kNever}) {
    const double seconds = front_chunk(1e9, finish, kNever) / 1e9;
    EXPECT_LE(seconds, 3e-3);
    EXPECT_GE(seconds, 1e-3);
  }
}

// ---- back_piece

TEST(HybridRule, APieceThatCannotBeThroughInTimeIsDeclined) {
  EXPECT_EQ(back_piece({1e9, 1e-3, 0}, 1e-3, 0, 1e6), 0);
  EXPECT_EQ(back_piece({1e9, 2e-3, 0}, 1e-3, 0, 1e6), 0);
  EXPECT_GT(back_piece({1e9, 0.999e-3, 0}, 1e-3, 0, 1e6), 0);
}

TEST(HybridRule, APieceIsTheFairShare) {
  EXPECT_DOUBLE_EQ(back_piece({1e9, 1e-3, 0}, 5e-3, 1e9, 1e9), 4e6);
  EXPECT_DOUBLE_EQ(back_piece({1e9, 0, 0}, 5e-3, 1e9, 1e9), 5e6);
}

TEST(HybridRule, APieceIsAllThereIsWhereTheOthersAreLate) {
  EXPECT_EQ(back_piece({1e9, 1e-3, 0}, 5e-3, 0, 1e6), 1e6);
  EXPECT_EQ(back_piece({1e9, 1e-3, 0.9}, kNever, 1, 1e6), 0.5e6) << "half of it, if others are there";
  EXPECT_EQ(back_piece({1e9, 1e-3, 0.9}, 5e-3, 0, 1e6), 1e6) << "alone there is nothing to lose";
}

// The others may lose uncertainty * finish each second; a second piece costs the device one latency. Near four times
// as much it is worth that.
TEST(HybridRule, APieceIsHalfWhereItsBeingLateWouldCostMore) {
  constexpr double kLatency = 1e-3, kFinish = 20e-3, kSpeed = 1e9, kOthers = 1e9;
  const double share = kSpeed * (kFinish - kLatency);
  const auto piece = [&](double latencies_lost) {
    const double uncertainty = latencies_lost * kLatency * kSpeed / (kFinish * kOthers);
    return back_piece({kSpeed, kLatency, uncertainty}, kFinish, kOthers, 1e9);
  };
  EXPECT_DOUBLE_EQ(piece(0), share);
  EXPECT_DOUBLE_EQ(piece(3), share);
  EXPECT_DOUBLE_EQ(piece(5), share / 2);
  EXPECT_DOUBLE_EQ(piece(50), share / 2);
  EXPECT_DOUBLE_EQ(back_piece({kSpeed, 0, 0.01}, kFinish, kOthers, 1e9), kSpeed * kFinish / 2)
      << "without a latency a second piece costs nothing";
}

// The others are four times as fast: they lose more by its being late than it loses by being early.
TEST(HybridRule, ASlowerDeviceEndsEarlier) {
  constexpr double kLatency = 5e-3, kFinish = 10e-3, kSpeed = 1e9;
  const auto piece = [](double uncertainty, double others) {
    return back_piece({kSpeed, kLatency, uncertainty}, kFinish, others, 1e9);
  };
  EXPECT_DOUBLE_EQ(piece(0, 4e9), 5e6);
  EXPECT_DOUBLE_EQ(piece(0.2, 4e9), 3.8e6) << "0.2 * 0.6 of 10 ms earlier";
  EXPECT_DOUBLE_EQ(piece(0.45, 4e9), 2.5e6) << "half of its time at most";
  EXPECT_DOUBLE_EQ(piece(0.2, 1e9), 5e6) << "a device as fast as the others";
  EXPECT_DOUBLE_EQ(piece(0.2, 0.1e9), 5e6);
}

// Otherwise a run with only idle lanes would wait for ever.
TEST(HybridRule, OfIdleDevicesOneTakesWhatThereIs) {
  Random random(59);
  for (int i = 0; i < 20'000; ++i) {
    const Machine machine = random_machine(random);
    const double finish = finish_of(machine.candidates, machine.bytes);
    double sum = 0;
    for (const Candidate &each : machine.candidates) sum += each.bytes_per_second;
    bool any = false;
    for (const Candidate &each : machine.candidates) {
      const DeviceLane lane{each.bytes_per_second, each.start_seconds, between(random, 0, 1)};
      const double piece = back_piece(lane, finish, sum - each.bytes_per_second, machine.bytes);
      ASSERT_GE(piece, 0);
      ASSERT_LE(piece, machine.bytes);
      ASSERT_LE(piece, std::max(finish - each.start_seconds, 0.0) * each.bytes_per_second);
      any = any || piece > 0;
    }
    ASSERT_TRUE(any) << "machine " << i;
  }
}

// Only ratios count: a clock or a unit of another size changes nothing.
TEST(HybridRule, ScalesOfTimeAndBytesDoNotMatter) {
  constexpr double kTimes = 0x1.0p-7, kBytes = 0x1.0p9;  // exact
  Random random(25);
  for (int i = 0; i < 5000; ++i) {
    const Machine machine = random_machine(random);
    Machine scaled = machine;
    scaled.bytes *= kBytes;
    for (Candidate &each : scaled.candidates) {
      each.bytes_per_second *= kBytes / kTimes;
      each.start_seconds *= kTimes;
    }
    const double finish = finish_of(machine.candidates, machine.bytes);
    ASSERT_EQ(finish_of(scaled.candidates, scaled.bytes), kTimes * finish);
    const Candidate &first = machine.candidates.front(), &its_scaled = scaled.candidates.front();
    const double uncertainty = between(random, 0, 1);
    ASSERT_EQ(
        back_piece({its_scaled.bytes_per_second, its_scaled.start_seconds, uncertainty}, kTimes * finish,
                   kBytes / kTimes * 1e7, scaled.bytes),
        kBytes * back_piece({first.bytes_per_second, first.start_seconds, uncertainty}, finish, 1e7, machine.bytes));
  }
}

// ---- first_piece_bytes

// While a device of 30 GB/s answers, in 2 ms, the CPU could do 60 MB. A run of up to about twice that it takes whole.
TEST(HybridRule, ShortRunBytes) {
  for (const double bytes : {1.0, 1e6, 60e6, 100e6}) EXPECT_EQ(first_piece_bytes(bytes, false), bytes);
  for (const double bytes : {2000e6, 1e9, 1e12}) EXPECT_LT(first_piece_bytes(bytes, false), bytes / 10);
}

// A slow device, of 1 GB/s, answers within 10 ms; a fast one, of 30 GB/s, computes for longer than 100 us.
TEST(HybridRule, FirstBytes) {
  const double bytes = first_piece_bytes(1e10, false);
  EXPECT_LE(bytes, 10e-3 * 1e9);
  EXPECT_GE(bytes, 100e-6 * 30e9);
}

// A device in the CPU's memory answers soon, however long the run is. So the piece is small.
TEST(HybridRule, FirstBytesInSharedMemory) {
  for (const double run : {50e6, 1e10}) {
    const double bytes = first_piece_bytes(run, true);
    EXPECT_GE(bytes, 0.5 * kMiB);
    EXPECT_LE(bytes, 2 * kMiB);
  }
}

}  // namespace
}  // namespace tandem::test
