// The targets for sharing work, on machines that need not exist: random ones, drawn from the seed that each failure
// names. docs/HYBRID.md has the figures.
//
// A machine: 1 to 64 workers, speeds log-uniform over 1:1 to 1:1000, a latency of each task of up to 2% of the ideal
// makespan divided by the number of workers, task times up to 30% longer or shorter than expected, and a job of at
// least a hundred times what the fastest worker does in its latency.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "hybrid/simulate/simulate.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using hybrid::Policy;
using hybrid::simulate;
using hybrid::SimulatedTask;
using hybrid::SimulatedWorker;
using hybrid::Simulation;
using hybrid::SimulationResult;

constexpr std::uint64_t kMachines = 5000, kFaultyMachines = 1500;
constexpr unsigned kOneIn = 4;
constexpr double kKnownWithin = 0.2;

double between(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.next() >> 11) * 0x1.0p-53;
}

double log_between(Random &random, double low, double high) {
  return std::exp(between(random, std::log(low), std::log(high)));
}

double all_speeds(const Simulation &simulation) {
  double sum = 0;
  for (const SimulatedWorker &each : simulation.workers) sum += each.bytes_per_second;
  return sum;
}

double ideal_seconds(const Simulation &simulation) {
  return static_cast<double>(simulation.work_bytes) / all_speeds(simulation);
}

Simulation random_machine(std::uint64_t seed, std::uint64_t least_workers = 1) {
  constexpr double kSlowest = 1e8;
  Random random(seed);
  Simulation simulation;
  simulation.seed = seed;
  const std::uint64_t count = random.between(least_workers, 64);
  double fastest = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    SimulatedWorker worker;
    worker.name = std::to_string(i);
    worker.bytes_per_second = log_between(random, kSlowest, 1000 * kSlowest);
    worker.jitter = between(random, 0, 0.3);
    fastest = std::max(fastest, worker.bytes_per_second);
    simulation.workers.push_back(worker);
  }
  simulation.work_bytes = static_cast<std::uint64_t>(log_between(random, 1e8, 1e12));
  const double work = static_cast<double>(simulation.work_bytes);
  const double most_latency = 0.02 * ideal_seconds(simulation) / static_cast<double>(count);
  for (SimulatedWorker &each : simulation.workers) {
    each.latency_seconds = between(random, 0, most_latency);
    if (each.bytes_per_second == fastest) each.latency_seconds = std::min(each.latency_seconds, work / 100 / fastest);
    each.known_bytes_per_second = each.bytes_per_second * between(random, 1 - kKnownWithin, 1 + kKnownWithin);
  }
  simulation.known_within = kKnownWithin;
  return simulation;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figure {
  double value;
  std::uint64_t seed;
  bool operator<(const Figure &other) const { return value < other.value; }
};

double median(std::vector<Figure> figures) {
  std::sort(figures.begin(), figures.end());
  return figures[figures.size() / 2].value;
}

std::string worst_of(std::vector<Figure> figures, bool high) {
  std::sort(figures.begin(), figures.end());
  if (high) std::reverse(figures.begin(), figures.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, figures.size()); ++i)
    text += " " + std::to_string(figures[i].value) + " (seed " + std::to_string(figures[i].seed) + ")";
  return text;
}

void say(const char *what, const std::vector<Figure> &figures, bool high = false) {
  std::printf("%s: median %.4f, worst%s\n", what, median(figures), worst_of(figures, high).c_str());
}

// ---- efficiency ------------------------------------------------------------------------------------

std::vector<Figure> efficiencies(bool speeds_known) {
  std::vector<Figure> all;
  Slice slice(kOneIn);
  for (std::uint64_t seed = slice.first(); seed < kMachines; seed += slice.step()) {
    Simulation simulation = random_machine(seed);
    if (!speeds_known)
      for (SimulatedWorker &each : simulation.workers) each.known_bytes_per_second = 0;
    const SimulationResult result = simulate(simulation);
    EXPECT_TRUE(result.completed) << "seed " << seed;
    std::uint64_t bytes = 0;
    for (const auto &each : result.workers) bytes += each.bytes;
    EXPECT_EQ(bytes, simulation.work_bytes) << "seed " << seed;
    all.push_back({result.efficiency, seed});
  }
  return all;
}

TEST(HybridMachines, SpeedsKnownWithinAFifth) {
  const std::vector<Figure> all = efficiencies(true);
  say("speeds known", all);
  EXPECT_GE(median(all), 0.98);
  EXPECT_GE(std::min_element(all.begin(), all.end())->value, 0.95) << worst_of(all, false);
}

TEST(HybridMachines, SpeedsUnknown) {
  const std::vector<Figure> all = efficiencies(false);
  say("speeds unknown", all);
  EXPECT_GE(median(all), 0.95);
  EXPECT_GE(std::min_element(all.begin(), all.end())->value, 0.90) << worst_of(all, false);
}

// ---- against what else could be done ---------------------------------------------------------------

double median_seconds(Simulation simulation, std::uint64_t seeds) {
  std::vector<double> seconds;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulation.seed = seed;
    seconds.push_back(simulate(simulation).makespan_seconds);
  }
  return median(std::move(seconds));
}

constexpr std::uint64_t kSeeds = 31;

// Two classes of workers, such as cores and devices, of which the slow ones are limited to every number in turn; chunks
// of three sizes.
TEST(HybridMachines, AutoAgainstTheBestBudget) {
  std::vector<Figure> all;
  Slice slice(kOneIn);
  for (std::uint64_t seed = slice.first(); seed < 48u; seed += slice.step()) {
    Random random(1'000'000 + seed);
    Simulation simulation;
    simulation.work_bytes = static_cast<std::uint64_t>(log_between(random, 1e9, 3e10));
    const std::uint64_t slow_count = random.between(1, 12), fast_count = random.between(1, 2);
    const double slow_speed = log_between(random, 3e8, 3e9), fast_speed = slow_speed * log_between(random, 1.5, 100);
    const double jitter = between(random, 0, 0.3);
    for (std::uint64_t i = 0; i < slow_count + fast_count; ++i) {
      SimulatedWorker worker;
      worker.name = i < slow_count ? "slow" : "fast";
      worker.bytes_per_second = i < slow_count ? slow_speed : fast_speed;
      worker.jitter = jitter;
      simulation.workers.push_back(worker);
    }
    const double most_latency = 0.02 * ideal_seconds(simulation) / static_cast<double>(slow_count + fast_count);
    for (SimulatedWorker &each : simulation.workers) {
      each.latency_seconds = between(random, 0, most_latency);
      each.known_bytes_per_second = each.bytes_per_second * between(random, 1 - kKnownWithin, 1 + kKnownWithin);
    }
    simulation.known_within = kKnownWithin;
    const double own = median_seconds(simulation, kSeeds);
    simulation.policy = Policy::budget;
    double best = std::numeric_limits<double>::infinity();
    for (const std::uint64_t chunks : {64u, 256u, 1024u}) {
      simulation.chunk_bytes = simulation.work_bytes / chunks + 1;
      for (std::uint64_t amount = 1; amount <= slow_count; ++amount) {
        simulation.resources = {{"slow", amount}};
        best = std::min(best, median_seconds(simulation, kSeeds));
      }
    }
    all.push_back({own / best, 1'000'000 + seed});
  }
  say("auto over the best budget", all, true);
  EXPECT_LE(std::max_element(all.begin(), all.end())->value, 1.02) << worst_of(all, true);
}

// Speeds of real devices: jobs of 10 ms and more.
TEST(HybridMachines, AutoAgainstTheFastestAlone) {
  std::vector<Figure> all;
  Slice slice(kOneIn);
  for (std::uint64_t seed = slice.first(); seed < 100u; seed += slice.step()) {
    Simulation simulation = random_machine(2'000'000 + seed);
    const auto fastest = std::max_element(
        simulation.workers.begin(), simulation.workers.end(),
        [](const SimulatedWorker &a, const SimulatedWorker &b) { return a.bytes_per_second < b.bytes_per_second; });
    Simulation alone = simulation;
    alone.workers = {*fastest};
    if (simulate(alone).makespan_seconds < 10e-3) continue;
    all.push_back({median_seconds(simulation, kSeeds) / median_seconds(alone, kSeeds), 2'000'000 + seed});
  }
  ASSERT_FALSE(all.empty());
  say("auto over the fastest alone", all, true);
  EXPECT_LE(std::max_element(all.begin(), all.end())->value, 1.01) << worst_of(all, true);
}

// ---- the report's board ----------------------------------------------------------------------------

TEST(HybridMachines, FreeStallsOnTheReportsBoard) {
  Simulation board;
  board.workers.resize(2);
  board.workers[0].name = "cpu";
  board.workers[0].bytes_per_second = 4 * 0.3e9;
  board.workers[0].claims = UINT64_MAX;
  board.workers[1].name = "gpu";
  board.workers[1].bytes_per_second = 6e9;
  for (SimulatedWorker &each : board.workers) each.known_bytes_per_second = each.bytes_per_second;
  board.work_bytes = std::uint64_t{8} << 30;
  board.chunk_bytes = std::uint64_t{8} << 20;
  const auto with = [&](Policy policy) {
    board.policy = policy;
    board.resources.clear();
    if (policy == Policy::budget) board.resources = {{"cpu", 5}};
    return simulate(board);
  };
  const SimulationResult free = with(Policy::free), budget = with(Policy::budget), own = with(Policy::automatic);
  std::printf("the report's board: free %.3f, budget %.3f, auto %.3f\n", free.efficiency, budget.efficiency,
              own.efficiency);
  EXPECT_LT(free.efficiency, 0.7 * own.efficiency);
  EXPECT_LT(free.efficiency, budget.efficiency);
  EXPECT_LE(budget.efficiency, own.efficiency);
  EXPECT_GT(own.efficiency, 0.98);
  EXPECT_GT(free.workers[0].task_count, 50 * free.workers[1].task_count) << "the CPU claimed nearly everything";
}

// ---- faults ----------------------------------------------------------------------------------------

enum class Fault { slow, dies, hangs };

// The makespan over that of somebody who knows at the moment of the fault what happens, loses nothing that is done, and
// cuts the rest as he likes among the speeds that are left.
Figure over_the_omniscient(std::uint64_t seed, Fault fault) {
  constexpr double kSlowFactor = 10;
  Simulation simulation = random_machine(seed, 2);
  Random random(seed + 77);
  const double at = ideal_seconds(simulation) / 2;
  const std::uint64_t faulty = random.between(1, simulation.workers.size() / 2);
  for (std::uint64_t i = 0; i < faulty; ++i) {
    SimulatedWorker &each = simulation.workers[i];
    if (fault == Fault::slow) {
      each.slow_from_seconds = at;
      each.slow_factor = kSlowFactor;
    } else {
      (fault == Fault::dies ? each.fails_at_seconds : each.hangs_at_seconds) = at;
    }
  }
  double speed_after = 0;
  for (std::uint64_t i = 0; i < simulation.workers.size(); ++i) {
    const double speed = simulation.workers[i].bytes_per_second;
    speed_after += i >= faulty ? speed : fault == Fault::slow ? speed / kSlowFactor : 0;
  }
  const SimulationResult result = simulate(simulation);
  EXPECT_TRUE(result.completed) << "seed " << seed;
  double done = 0;  // at the fault, and by those that are not hit the part that they have
  for (const SimulatedTask &task : result.tasks) {
    if (!task.committed || task.start_seconds >= at) continue;
    const double bytes = static_cast<double>(task.range.bytes());
    if (task.end_seconds <= at) {
      done += bytes;
    } else if (task.worker >= faulty) {
      done += bytes * (at - task.start_seconds) / (task.end_seconds - task.start_seconds);
    }
  }
  const double omniscient = at + (static_cast<double>(simulation.work_bytes) - done) / speed_after;
  return {result.makespan_seconds / omniscient, seed};
}

std::vector<Figure> all_over_the_omniscient(Fault fault) {
  std::vector<Figure> all;
  Slice slice(kOneIn);
  for (std::uint64_t seed = slice.first(); seed < kFaultyMachines; seed += slice.step())
    all.push_back(over_the_omniscient(3'000'000 + seed, fault));
  // A slow worker hangs with its last chunk, all else is done: found among 5000, once too late to be rescued in time.
  for (const std::uint64_t seed : {3'000'355u, 3'004'117u}) all.push_back(over_the_omniscient(seed, fault));
  return all;
}

TEST(HybridMachines, SomeSlowDown) {
  const std::vector<Figure> all = all_over_the_omniscient(Fault::slow);
  say("slow down 10 times, over the omniscient", all, true);
  EXPECT_LE(std::max_element(all.begin(), all.end())->value, 1.3) << worst_of(all, true);
}

TEST(HybridMachines, SomeDie) {
  const std::vector<Figure> all = all_over_the_omniscient(Fault::dies);
  say("die, over the omniscient", all, true);
  EXPECT_LE(std::max_element(all.begin(), all.end())->value, 1.3) << worst_of(all, true);
}

TEST(HybridMachines, SomeHang) {
  const std::vector<Figure> all = all_over_the_omniscient(Fault::hangs);
  say("hang, over the omniscient", all, true);
  EXPECT_LE(std::max_element(all.begin(), all.end())->value, 1.3) << worst_of(all, true);
}

}  // namespace
}  // namespace tandem::test
