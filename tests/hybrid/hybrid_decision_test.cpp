// The rule by which work is shared: what it promises, on random machines.
#include "hybrid/policy/decision.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::Candidate;
using hybrid::chunk_for;
using hybrid::predicted_finish;

constexpr double kNever = std::numeric_limits<double>::infinity();

double between(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.next() >> 11) * 0x1.0p-53;
}

double start_of(const Candidate &each) { return each.free_in_seconds + each.latency_seconds; }

double share_of(const Candidate &each, double finish) {
  return std::max(finish - start_of(each), 0.0) * each.bytes_per_second;
}

struct Machine {
  std::vector<Candidate> candidates;
  double work_bytes;
};

// Speeds over 1:1000, jobs from less than the slowest's latency to thousands of times the fastest's.
Machine random_machine(Random &random, bool all_idle) {
  Machine machine;
  double speed = 0;
  for (std::uint64_t n = random.between(1, 20); n > 0; --n) {
    Candidate each{1e6 * std::pow(10, between(random, 0, 3))};
    each.latency_seconds = random.chance(30) ? 0 : std::pow(10, between(random, -6, -1));
    each.uncertainty = between(random, 0, 1);
    each.knee_bytes = random.chance(30) ? 0 : each.latency_seconds * each.bytes_per_second;
    if (!all_idle && random.chance(60)) each.free_in_seconds = std::pow(10, between(random, -4, 1));
    if (!all_idle && random.chance(5)) each.free_in_seconds = kNever;
    if (random.chance(20)) each.most_bytes = std::pow(10, between(random, 3, 8));
    speed += each.bytes_per_second;
    machine.candidates.push_back(each);
  }
  machine.work_bytes = std::max(1.0, speed * std::pow(10, between(random, -5, 2)));
  return machine;
}

// Or a run with idle workers would wait for ever.
TEST(HybridDecision, OfIdleWorkersSomebodyTakesWhatThereIs) {
  Random random(59);
  for (int i = 0; i < 100'000; ++i) {
    const Machine machine = random_machine(random, true);
    bool any = false;
    for (std::size_t w = 0; w < machine.candidates.size(); ++w)
      any = any || chunk_for(machine.candidates, w, machine.work_bytes) > 0;
    ASSERT_TRUE(any) << "machine " << i << " with " << machine.candidates.size() << " workers";
  }
  // The fastest one begins when the others would be through, and their shares are below their knees.
  std::vector<Candidate> lanes(16, Candidate{5e9, 5e-6, 0.1, 262144});
  lanes.push_back({40e9, 100e-6, 0.1, 1048576});
  for (const double work : {0.7e6, 1e6, 2e6, 4e6}) {
    bool any = false;
    for (std::size_t w = 0; w < lanes.size(); ++w) any = any || chunk_for(lanes, w, work) > 0;
    EXPECT_TRUE(any) << work;
  }
}

TEST(HybridDecision, FinishIsWhereTheFairSharesAreTheWork) {
  Random random(21);
  for (int i = 0; i < 20'000; ++i) {
    const Machine machine = random_machine(random, random.chance(50));
    const double finish = predicted_finish(machine.candidates, machine.work_bytes);
    bool nobody = true;
    for (const Candidate &each : machine.candidates) nobody = nobody && std::isinf(each.free_in_seconds);
    ASSERT_EQ(std::isinf(finish), nobody);
    if (nobody) continue;
    double shares = 0;
    for (const Candidate &each : machine.candidates) shares += share_of(each, finish);
    ASSERT_NEAR(shares / machine.work_bytes, 1, 1e-6);
  }
  EXPECT_TRUE(std::isinf(predicted_finish({}, 1)));
}

TEST(HybridDecision, SomebodyWorksWhereAllAreIdle) {
  Random random(22);
  for (int i = 0; i < 20'000; ++i) {
    const Machine machine = random_machine(random, true);
    double most = 0;
    for (std::size_t w = 0; w < machine.candidates.size(); ++w)
      most = std::max(most, chunk_for(machine.candidates, w, machine.work_bytes));
    ASSERT_GT(most, 0) << "machine " << i;
  }
}

TEST(HybridDecision, NoMoreThanTheFairShareButAloneOrForTheKnee) {
  Random random(23);
  unsigned shared = 0, alone = 0, knees = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Machine machine = random_machine(random, random.chance(30));
    const std::vector<Candidate> &all = machine.candidates;
    const double finish = predicted_finish(all, machine.work_bytes);
    for (std::size_t w = 0; w < all.size(); ++w) {
      if (all[w].free_in_seconds != 0) continue;
      const double chunk = chunk_for(all, w, machine.work_bytes);
      ASSERT_GE(chunk, 0);
      ASSERT_LE(chunk, machine.work_bytes * (1 + 1e-12));
      if (chunk == 0) continue;
      // Neither is it smaller than pays, where there is so much.
      ASSERT_GE(chunk, std::min(all[w].knee_bytes, machine.work_bytes) * (1 - 1e-12));
      ASSERT_LE(chunk, std::max(all[w].most_bytes, all[w].knee_bytes) * (1 + 1e-12));
      if (chunk <= share_of(all[w], finish) * (1 + 1e-9)) {
        ++shared;
        continue;
      }
      if (chunk <= all[w].knee_bytes * (1 + 1e-12)) {
        ++knees;
        continue;
      }
      // More than its share: then it is the one who does all that is left, and nobody else takes any.
      ++alone;
      for (std::size_t other = 0; other < all.size(); ++other) {
        if (other == w || all[other].free_in_seconds != 0) continue;
        ASSERT_EQ(chunk_for(all, other, machine.work_bytes), 0);
      }
    }
  }
  EXPECT_GT(shared, 1000u);
  EXPECT_GT(alone, 500u);
  EXPECT_GT(knees, 10u);
}

TEST(HybridDecision, SmallJobsGoToWhoIsThroughFirst) {
  // A device ten times as fast that starts 10 ms late: up to about 1e6 * 10e-3 bytes are the CPU's.
  const std::vector<Candidate> both = {{1e6}, {1e7, 10e-3}};
  EXPECT_EQ(chunk_for(both, 0, 1e3), 1e3);
  EXPECT_EQ(chunk_for(both, 1, 1e3), 0);
  EXPECT_GT(chunk_for(both, 1, 1e7), 0.8e7);
  // With enough latency on both sides the faster one is not even helped.
  const std::vector<Candidate> late = {{1e6, 10e-3}, {1e7, 10e-3}};
  EXPECT_EQ(chunk_for(late, 0, 1e3), 0);
  EXPECT_EQ(chunk_for(late, 1, 1e3), 1e3);
}

TEST(HybridDecision, ASlowOneTakesNothingOfTheTail) {
  Random random(24);
  for (int i = 0; i < 1000; ++i) {
    // The fast one is through with all that is left in `left` seconds; one byte of the slow one's knee takes longer.
    const double left = std::pow(10, between(random, -4, 0));
    const Candidate fast{1e9, 0, 0, 0, left * between(random, 0, 1)};
    Candidate slow{1e6, 0, between(random, 0, 1)};
    slow.knee_bytes = slow.bytes_per_second * 2.1 * left;
    EXPECT_EQ(chunk_for(std::vector{slow, fast}, 0, left * 1e9), 0);
    Candidate late = slow;
    late.knee_bytes = 0;
    late.latency_seconds = 2.1 * left;
    EXPECT_EQ(chunk_for(std::vector{late, fast}, 0, left * 1e9), 0);
    // Without fixed costs its thousandth is welcome.
    slow.knee_bytes = 0;
    if (fast.free_in_seconds > 0.2 * left) {
      const double chunk = chunk_for(std::vector{slow, fast}, 0, left * 1e9);
      EXPECT_LE(chunk, slow.bytes_per_second * predicted_finish(std::vector{slow, fast}, left * 1e9) * (1 + 1e-9));
    }
  }
}

TEST(HybridDecision, TheLessIsKnownTheSmallerTheChunk) {
  std::vector<Candidate> pair = {{1e6, 1e-6}, {1e6, 1e-6}};
  double before = kNever;
  for (const double uncertainty : {0.0, 0.1, 0.2, 0.5, 1.0, 2.0}) {
    pair[0].uncertainty = uncertainty;
    const double chunk = chunk_for(pair, 0, 1e6);
    EXPECT_GT(chunk, 0);
    EXPECT_LE(chunk, before);
    before = chunk;
  }
  EXPECT_LT(before, 0.2e6);
}

TEST(HybridDecision, SomethingIsLeftForOneThatDoesNotAnswer) {
  std::vector<Candidate> pair = {{1e6, 1e-6}, {1e6, 1e-6, 0, 0, kNever}};
  EXPECT_LE(chunk_for(pair, 0, 1e6), 0.25e6 * (1 + 1e-9));
  pair[1].free_in_seconds = 0;
  EXPECT_GT(chunk_for(pair, 0, 1e6), 0.4e6);
}

// Nothing but ratios counts: a clock or a unit of another size changes nothing.
TEST(HybridDecision, ScalesOfTimeAndBytesDoNotMatter) {
  Random random(25);
  for (int i = 0; i < 5000; ++i) {
    const Machine machine = random_machine(random, random.chance(30));
    constexpr double kTimes = 0x1.0p-7, kBytes = 0x1.0p9;  // exact
    std::vector<Candidate> scaled = machine.candidates;
    for (Candidate &each : scaled) {
      each.bytes_per_second *= kBytes / kTimes;
      each.latency_seconds *= kTimes;
      each.knee_bytes *= kBytes;
      each.free_in_seconds *= kTimes;
      each.most_bytes *= kBytes;
    }
    for (std::size_t w = 0; w < scaled.size(); ++w) {
      ASSERT_EQ(chunk_for(scaled, w, machine.work_bytes * kBytes),
                kBytes * chunk_for(machine.candidates, w, machine.work_bytes));
    }
  }
}

}  // namespace
}  // namespace tandem::test
