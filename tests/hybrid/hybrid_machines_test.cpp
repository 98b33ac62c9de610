// SPDX-License-Identifier: Apache-2.0
// The targets for sharing work, on random machines that need not exist. Each is drawn from the seed that a failure
// names. docs/internals/HYBRID.md has the figures.
//
// A machine has 1 to 64 workers in 1 to 4 kinds. In 9 of 10 machines the first kind is a CPU. Speeds are log-uniform
// from 0.03 to 30 GB/s for each worker, task times up to 30% longer or shorter than expected. A job has 4 MiB to 4 GiB.
// Latencies are those of real workers: 0.1 to 1 microsecond for a chunk of the CPU, 20 microseconds to 5 ms for a
// device. The scheduler knows none of these numbers before its first call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulate/simulate.hpp"
#include "hybrid/policy/share.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using bench::simulate;
using bench::SimulatedTask;
using bench::SimulatedWorker;
using bench::Simulation;
using bench::SimulationResult;
using hybrid::Candidate;
using hybrid::Policy;

constexpr std::uint64_t kMachines = 5000;
constexpr std::uint64_t kSeeds = 31;
constexpr unsigned kLearningCalls = 3;
constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

// ---- machines --------------------------------------------------------------------------------------

double between(Random &random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.next() >> 11) * 0x1.0p-53;
}

double log_between(Random &random, double low, double high) {
  return std::exp(between(random, std::log(low), std::log(high)));
}

SimulatedWorker random_worker(Random &random, bool is_cpu) {
  SimulatedWorker worker;
  worker.name = is_cpu ? "cpu" : "gpu";
  worker.bytes_per_second = log_between(random, 0.03e9, 30e9);
  worker.latency_seconds = is_cpu ? log_between(random, 0.1e-6, 1e-6) : log_between(random, 20e-6, 5e-3);
  worker.jitter = between(random, 0, 0.3);
  return worker;
}

// The CPU is one worker: all cores do each chunk, and their start takes 10 microseconds.
void pool(SimulatedWorker &worker, double cores) {
  worker.bytes_per_second *= cores;
  worker.latency_seconds += 10e-6;
  worker.jitter /= std::sqrt(cores);
}

Simulation random_machine(std::uint64_t seed) {
  constexpr std::size_t kMostWorkers = 64, kMostKinds = 4, kMostLanes = 2;
  Random random(seed);
  Simulation machine;
  machine.seed = seed;
  const bool has_cpu = random.below(10) < 9;
  const std::uint64_t kinds = random.between(1, kMostKinds);
  for (std::uint64_t kind = 0; kind < kinds; ++kind) {
    const bool is_cpu = has_cpu && kind == 0;
    SimulatedWorker worker = random_worker(random, is_cpu);
    if (!is_cpu) worker.name += std::to_string(kind);
    const std::size_t most_cores = kMostWorkers - (kMostKinds - 1) * kMostLanes;
    const double lanes = is_cpu ? std::round(log_between(random, 1, static_cast<double>(most_cores)))
                                : static_cast<double>(random.between(1, kMostLanes));
    if (is_cpu && lanes > 1) {
      pool(worker, lanes);
      machine.workers.push_back(worker);
    } else {
      machine.workers.insert(machine.workers.end(), static_cast<std::size_t>(lanes), worker);
    }
  }
  machine.work_bytes = static_cast<std::uint64_t>(log_between(random, 4 * kMiB, 4 * kGiB));
  return machine;
}

// The time that no schedule can beat: latencies overlap with the work of the others, all end together.
double ideal_seconds(const Simulation &machine) {
  return hybrid::finish_seconds(
      [&](auto body) {
        for (const SimulatedWorker &each : machine.workers)
          body(Candidate{each.bytes_per_second, each.latency_seconds});
      },
      static_cast<double>(machine.work_bytes));
}

// ---- figures ---------------------------------------------------------------------------------------

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const auto index = static_cast<std::size_t>(part * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

class Figures {
 public:
  explicit Figures(const char *what, bool low_is_bad = false) : what_(what), low_is_bad_(low_is_bad) {}
  Figures(const Figures &) = delete;
  Figures &operator=(const Figures &) = delete;
  ~Figures() {
    if (values_.empty()) return;
    std::printf("%s (%zu): 5%% %.3f, median %.3f, 95%% %.3f, worst%s\n", what_, values_.size(), part(0.05), median(),
                part(0.95), worst_seeds().c_str());
  }

  void add(std::uint64_t seed, double value) { values_.emplace_back(value, seed); }

  double part(double of_all) const {
    std::vector<double> values;
    for (const auto &[value, seed] : values_) values.push_back(value);
    return quantile(std::move(values), of_all);
  }
  double median() const { return part(0.5); }
  double worst() const { return part(low_is_bad_ ? 0 : 1); }

  std::string worst_seeds() const {
    auto sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    if (!low_is_bad_) std::reverse(sorted.begin(), sorted.end());
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(5, sorted.size()); ++i) {
      char one[64];
      std::snprintf(one, sizeof one, " %.3f (seed %llu)", sorted[i].first,
                    static_cast<unsigned long long>(sorted[i].second));
      text += one;
    }
    return text;
  }

 private:
  const char *what_;
  bool low_is_bad_;
  std::vector<std::pair<double, std::uint64_t>> values_;
};

// A slice has another median and other quantiles than all machines. Its worst value is never worse.
double slack() { return runs_every_case() ? 0 : 0.03; }

SimulationResult run(const Simulation &machine) {
  SimulationResult result = simulate(machine);
  EXPECT_TRUE(result.completed) << "seed " << machine.seed;
  std::uint64_t bytes = 0;
  for (const auto &each : result.workers) bytes += each.bytes;
  EXPECT_EQ(bytes, machine.work_bytes) << "seed " << machine.seed;
  return result;
}

struct Medians {
  double seconds, efficiency;
};

Medians medians(Simulation machine, std::uint64_t seeds) {
  std::vector<double> seconds, efficiencies;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    machine.seed = 5000 + seed;
    const SimulationResult result = run(machine);
    seconds.push_back(result.makespan_seconds);
    efficiencies.push_back(result.efficiency);
  }
  return {quantile(std::move(seconds), 0.5), quantile(std::move(efficiencies), 0.5)};
}

void learn(Simulation &machine) {
  for (unsigned call = 0; call < kLearningCalls; ++call) {
    machine.learned = run(machine).learned;
    machine.seed = 1000 + call;
  }
}

// Of the fastest kind of worker: with all its lanes, with a known speed, and without the others.
double best_alone_seconds(const Simulation &machine, std::uint64_t seeds) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0, end = 0; first < machine.workers.size(); first = end) {
    Simulation alone = machine;
    alone.learned.clear();
    alone.workers.clear();
    for (; end < machine.workers.size() && machine.workers[end].name == machine.workers[first].name; ++end) {
      SimulatedWorker &worker = alone.workers.emplace_back(machine.workers[end]);
      worker.known_bytes_per_second = worker.bytes_per_second;
      worker.assumed_latency_seconds = worker.latency_seconds;
    }
    best = std::min(best, medians(alone, seeds).seconds);
  }
  return best;
}

// ---- healthy machines ------------------------------------------------------------------------------

TEST(HybridMachines, FirstCall) {
  Figures efficiency("first call, efficiency", true), time("first call, time over the best device alone");
  Slice slice(4);
  for (std::uint64_t seed = slice.first(); seed < kMachines; seed += slice.step()) {
    const Simulation machine = random_machine(seed);
    const SimulationResult result = run(machine);
    efficiency.add(seed, result.efficiency);
    time.add(seed, result.makespan_seconds / best_alone_seconds(machine, 7));
  }
  EXPECT_GE(efficiency.median(), 0.95 - slack());
  // The target is 1.5. What misses it ends before a piece of a device does: 28 MiB in 6 ms, of which a slow device
  // holds a part until its lateness shows. Or it takes 0.1 ms, and ten forks and joins of the CPU are half of that.
  EXPECT_LE(time.worst(), 3.6);
}

TEST(HybridMachines, LaterCalls) {
  Figures efficiency("later calls, efficiency", true), time("later calls, time over the best device alone");
  Slice slice(20);
  for (std::uint64_t seed = slice.first(); seed < kMachines; seed += slice.step()) {
    Simulation machine = random_machine(seed);
    const double alone = best_alone_seconds(machine, kSeeds);
    learn(machine);
    const Medians own = medians(machine, kSeeds);
    efficiency.add(seed, own.efficiency);
    time.add(seed, own.seconds / alone);
  }
  // 0.980, 0.899 and 1.15 are reached. What is worst is short: a device has time for one piece, and the piece ends
  // early or late by its jitter. No second piece is worth its latency, so the CPU does what is left.
  EXPECT_GE(efficiency.median(), 0.97 - slack());
  EXPECT_GE(efficiency.part(0.05), 0.88 - slack());
  EXPECT_LE(time.worst(), 1.3);
}

// A CPU and a device. The CPU may use every number of its cores in turn, with chunks of three sizes.
TEST(HybridMachines, AutoAgainstTheBestBudget) {
  constexpr std::uint64_t kFirst = 1'000'000, kCount = 48;
  Figures time("auto over the best budget");
  Slice slice(4);
  for (std::uint64_t seed = kFirst + slice.first(); seed < kFirst + kCount; seed += slice.step()) {
    Random random(seed);
    Simulation machine;
    machine.seed = seed;
    const std::uint64_t cores = random.between(1, 12), lanes = random.between(1, 2);
    machine.workers.assign(cores, random_worker(random, true));
    machine.workers.insert(machine.workers.end(), lanes, random_worker(random, false));
    machine.work_bytes = static_cast<std::uint64_t>(log_between(random, 4 * kMiB, 4 * kGiB));
    Simulation budget = machine;
    machine.workers.erase(machine.workers.begin() + 1, machine.workers.begin() + static_cast<std::ptrdiff_t>(cores));
    if (cores > 1) pool(machine.workers[0], static_cast<double>(cores));
    learn(machine);
    const double own = medians(machine, kSeeds).seconds;
    budget.policy = Policy::budget;
    double best = std::numeric_limits<double>::infinity();
    for (const std::uint64_t chunks : {64u, 256u, 1024u}) {
      budget.chunk_bytes = budget.work_bytes / chunks + 1;
      for (std::uint64_t amount = 1; amount <= cores; ++amount) {
        budget.resources = {{"cpu", amount}};
        best = std::min(best, medians(budget, kSeeds).seconds);
      }
    }
    time.add(seed, own / best);
  }
  EXPECT_LE(time.worst(), 1.02);
}

// Two kinds of devices behind one link, which is slower than the two together. The scheduler does not know of it.
TEST(HybridMachines, DevicesBehindOneLink) {
  constexpr std::uint64_t kFirst = 2'000'000, kCount = 400;
  Figures first("link, first call, time over the best device alone");
  Figures later("link, later calls, time over the best device alone");
  Slice slice(8);
  for (std::uint64_t seed = kFirst + slice.first(); seed < kFirst + kCount; seed += slice.step()) {
    Random random(seed);
    Simulation machine;
    machine.seed = seed;
    const std::uint64_t cores = random.between(1, 16);
    machine.workers.assign(1, random_worker(random, true));
    if (cores > 1) pool(machine.workers[0], static_cast<double>(cores));
    double sum = 0, fastest = 0;
    for (const char *name : {"gpu1", "gpu2"}) {
      SimulatedWorker worker = random_worker(random, false);
      worker.name = name;
      worker.link = 0;
      sum += worker.bytes_per_second;
      fastest = std::max(fastest, worker.bytes_per_second);
      machine.workers.push_back(worker);
    }
    machine.link_bytes_per_second = {between(random, 0.5 * fastest, sum)};
    machine.work_bytes = static_cast<std::uint64_t>(log_between(random, 4 * kMiB, 4 * kGiB));
    const double alone = best_alone_seconds(machine, kSeeds);
    first.add(seed, run(machine).makespan_seconds / alone);
    learn(machine);
    later.add(seed, medians(machine, kSeeds).seconds / alone);
  }
  // The targets are 1.5 and 1.05. Nothing in the scheduler knows of the link: a device that is alone on it is
  // remembered with a speed that it does not have beside the other one, and a piece is twice as long as was expected.
  EXPECT_LE(first.median(), 1.02 + 2 * slack());
  EXPECT_LE(first.worst(), 2.5);
  EXPECT_LE(later.median(), 0.98 + 2 * slack());
  EXPECT_LE(later.worst(), 1.55);
}

// A device that is fifty times as fast as a core, and needs 100 microseconds to answer. A first design never gave it
// anything: its latency was taken for slowness. That took 4.26 ms.
TEST(HybridMachines, AFastDeviceIsUsedFromTheFirstCallOn) {
  Simulation machine;
  SimulatedWorker core, device;
  core.name = "cpu";
  core.bytes_per_second = 1e9;
  core.latency_seconds = 5e-6;
  device.name = "gpu";
  device.bytes_per_second = 50e9;
  device.latency_seconds = 100e-6;
  core.jitter = device.jitter = 0.05;
  pool(core, 16);
  machine.workers.push_back(core);
  machine.workers.push_back(device);
  machine.work_bytes = 64 << 20;
  const double alone = best_alone_seconds(machine, kSeeds);
  const Medians first = medians(machine, kSeeds);
  Simulation known = machine;
  for (SimulatedWorker &each : known.workers) {
    each.known_bytes_per_second = each.bytes_per_second;
    each.assumed_latency_seconds = each.latency_seconds;
  }
  const Medians informed = medians(known, kSeeds);
  learn(machine);
  const Medians later = medians(machine, kSeeds);
  std::printf("the device alone %.2f ms; first call %.2f, later calls %.2f, with known speeds %.2f\n", alone * 1e3,
              first.seconds * 1e3, later.seconds * 1e3, informed.seconds * 1e3);
  EXPECT_NEAR(alone, 1.44e-3, 0.02e-3);
  // 1.14 ms is ideal with known speeds; 1.4, 1.12 and 1.12 are reached.
  EXPECT_LE(first.seconds, 1.65e-3);
  EXPECT_LE(later.seconds, 1.3e-3);
  EXPECT_LE(informed.seconds, 1.3e-3);
}

// ---- faults ----------------------------------------------------------------------------------------

enum class Fault { slow, dies, hangs };

// Half-way a fault hits some of the devices, up to all of them. The time over that of an omniscient restart: it knows
// at the moment of the fault what happens, loses nothing that is done, and shares the rest ideally.
double over_the_omniscient(Simulation machine, Fault fault) {
  constexpr double kSlowFactor = 10;
  const std::uint64_t seed = machine.seed;
  const std::size_t count = machine.workers.size();
  std::size_t devices = 0;
  for (const SimulatedWorker &each : machine.workers) devices += !each.is_cpu();
  Random random(seed + 77);
  // The last ones are hit. One worker stays healthy.
  const std::size_t hit = devices == 0 ? 0 : random.between(1, std::min(devices, count - 1));
  const double at = ideal_seconds(machine) / 2;
  for (std::size_t i = count - hit; i < count; ++i) {
    SimulatedWorker &each = machine.workers[i];
    if (fault == Fault::slow) {
      each.slow_from_seconds = at;
      each.slow_factor = kSlowFactor;
    } else {
      (fault == Fault::dies ? each.fails_at_seconds : each.hangs_at_seconds) = at;
    }
  }
  const SimulationResult result = run(machine);
  double done = 0;  // at the fault, with a fair part of what was under way
  for (const SimulatedTask &task : result.tasks) {
    if (task.start_seconds >= at) continue;
    const double part = (at - task.start_seconds) / std::max(task.end_seconds - task.start_seconds, 1e-12);
    done += static_cast<double>(task.committed_bytes) * std::min(part, 1.0);
  }
  const double rest = hybrid::finish_seconds(
      [&](auto body) {
        for (std::size_t i = 0; i < count; ++i) {
          const SimulatedWorker &each = machine.workers[i];
          const double factor = i < count - hit ? 1 : fault == Fault::slow ? kSlowFactor : 0;
          if (factor > 0) body(Candidate{each.bytes_per_second / factor, each.latency_seconds * factor});
        }
      },
      std::max(static_cast<double>(machine.work_bytes) - done, 0.0));
  return result.makespan_seconds / (at + rest);
}

// All kinds of workers take part.
bool is_shared(const Simulation &machine) {
  const SimulationResult result = run(machine);
  return std::all_of(machine.workers.begin(), machine.workers.end(), [&](const SimulatedWorker &each) {
    return std::any_of(result.workers.begin(), result.workers.end(),
                       [&](const auto &share) { return share.name == each.name && share.task_count > 0; });
  });
}

double longest_latency(const Simulation &machine) {
  double longest = 0;
  for (const SimulatedWorker &each : machine.workers) longest = std::max(longest, each.latency_seconds);
  return longest;
}

constexpr double kLongRun = 50;

struct FaultCase {
  Fault fault;
  const char *what;
  // What holds: for 95% of the shared runs, for 95% of the long ones, for all long ones, and for all.
  double most, long_runs, long_worst, worst;
};

class HybridMachinesFault : public testing::TestWithParam<FaultCase> {};

TEST_P(HybridMachinesFault, OverTheOmniscient) {
  constexpr std::uint64_t kFirst = 3'000'000;
  const FaultCase &fault = GetParam();
  Figures time(fault.what), long_runs("  of these, runs of 50 latencies and more");
  Slice slice(8);
  for (std::uint64_t seed = kFirst + slice.first(); seed < kFirst + kMachines; seed += slice.step()) {
    Simulation machine = random_machine(seed);
    if (machine.workers.size() < 2 || machine.workers.back().is_cpu()) continue;
    learn(machine);
    machine.seed = seed;
    // A device that does a run alone and hangs has a deadline of real time, which is not simulated.
    if (!is_shared(machine)) continue;
    const double ratio = over_the_omniscient(machine, fault.fault);
    time.add(seed, ratio);
    if (ideal_seconds(machine) >= kLongRun * longest_latency(machine)) long_runs.add(seed, ratio);
  }
  EXPECT_LE(time.median(), 1.02 + slack());
  if (runs_every_case()) {  // the tail is too steep for a slice's quantile
    EXPECT_LE(time.part(0.95), fault.most);
    EXPECT_LE(long_runs.part(0.95), fault.long_runs);
  }
  EXPECT_LE(long_runs.worst(), fault.long_worst);
  EXPECT_LE(time.worst(), fault.worst);
}

// The target is 1.3. Devices that die meet it in long runs. In short ones a device has one piece: it is missed only
// when its end was due, which the omniscient does not wait for. A hang or slow-down is found as late in a long run, if
// the last piece of a device is large.
INSTANTIATE_TEST_SUITE_P(
    , HybridMachinesFault,
    testing::Values(FaultCase{Fault::slow, "devices become 10 times slower, over the omniscient", 1.55, 1.1, 1.9, 3.6},
                    FaultCase{Fault::dies, "devices die, over the omniscient", 1.2, 1.1, 1.3, 3.4},
                    FaultCase{Fault::hangs, "devices hang, over the omniscient", 1.75, 1.15, 2.5, 3.8}));

// Any of the workers, also all of them, also those that work in place. It ends: either done or not.
TEST(HybridMachines, EveryRunEndsWhateverHangsOrFails) {
  unsigned ended_undone = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Simulation machine = random_machine(seed);
    if (seed % 2 == 0) learn(machine);
    Random random(seed);
    const double whole = ideal_seconds(machine);
    bool any_hangs = false;
    for (SimulatedWorker &each : machine.workers) {
      if (random.below(4) == 0) each.fails_at_seconds = between(random, 0, 3 * whole);
      if (random.below(4) != 0) continue;
      each.hangs_at_seconds = random.below(4) == 0 ? 0 : between(random, 0, whole);
      any_hangs = true;
    }
    if (seed % 3 == 0) machine.resources = {{machine.workers[0].name, 1}};
    const SimulationResult result = simulate(machine);
    ended_undone += !result.completed;
    const bool all_fail = std::all_of(machine.workers.begin(), machine.workers.end(),
                                      [](const auto &each) { return each.fails_at_seconds < bench::kNeverSeconds; });
    EXPECT_TRUE(result.completed || any_hangs || all_fail) << seed;
  }
  EXPECT_GT(ended_undone, 50u);
}

// ---- cost ------------------------------------------------------------------------------------------

// A run of 1 GiB on 128 cores, which are one worker, and two lanes of a device.
TEST(HybridMachines, SchedulingTakesLittleProcessorTime) {
  constexpr std::uint64_t kWork = 1 << 30;
  constexpr double kSpeeds[] = {128e9, 20e9, 20e9}, kLatencies[] = {10e-6, 100e-6, 100e-6};
  const auto processor_seconds = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  double best = std::numeric_limits<double>::infinity();
  for (unsigned round = 0; round < 11; ++round) {
    const double start = processor_seconds();
    hybrid::Share share({Policy::automatic, kWork}, {{1, true}, {2, false}});
    std::priority_queue<std::pair<double, unsigned>, std::vector<std::pair<double, unsigned>>, std::greater<>> ends;
    std::optional<hybrid::Piece> pieces[3];
    const auto begin = [&](double now) {
      share.look(now);
      for (unsigned lane = 0; lane < 3; ++lane) {
        if (pieces[lane] || !(pieces[lane] = share.take(lane, now))) continue;
        ends.emplace(now + kLatencies[lane] + static_cast<double>(pieces[lane]->range.bytes()) / kSpeeds[lane], lane);
      }
    };
    for (begin(0); !ends.empty() && !share.is_done();) {
      const auto [now, lane] = ends.top();
      ends.pop();
      share.commit(pieces[lane]->id, pieces[lane]->range.bytes(), now);
      share.finish(std::exchange(pieces[lane], std::nullopt)->id, now);
      begin(now);
    }
    best = std::min(best, processor_seconds() - start);
    ASSERT_TRUE(share.is_done());
  }
  std::printf("scheduling 1 GiB on 128 cores and 2 lanes: %.3f ms\n", best * 1e3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(best, 1e-3);
#endif
}

}  // namespace
}  // namespace tandem::test
