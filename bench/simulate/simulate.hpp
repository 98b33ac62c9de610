// SPDX-License-Identifier: Apache-2.0
// A run on a machine that need not exist: the decisions of hybrid/policy/share.hpp in virtual time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hybrid/policy/share.hpp"

namespace tandem::bench {

using hybrid::Policy;
using hybrid::Range;
using hybrid::Speed;

inline constexpr double kNeverSeconds = std::numeric_limits<double>::infinity();
inline constexpr double kLeastDeviceLatencySeconds = 20e-6;

// The actual behaviour of one worker. A task of c bytes takes (latency + c / bytes_per_second) * (1 + jitter * r), r
// uniform in [-1, 1]. Neighbours with the same name and numbers are lanes of one group. A worker with a name that
// begins with "cpu" works in place, at the front, unless its latency is a device's. The others are devices.
struct SimulatedWorker {
  std::string name;  // also of its resource: each task holds one unit of it
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double jitter = 0;
  std::uint64_t claims = 1;                       // tasks that it may hold before they run (budget)
  double known_bytes_per_second = 0;              // the speed that the scheduler assumes; 0 = none
  std::optional<double> assumed_latency_seconds;  // the latency that it assumes; none: a guess, if it assumes a speed
  // Index into Simulation::link_bytes_per_second; none: its data crosses no link. The workers of one link that are busy
  // when a task begins share the link's speed equally for that task. Each gets at most its own speed.
  std::optional<std::size_t> link;
  // Faults: from `slow_from` on it is `slow_factor` times as slow; at `fails_at` it fails with an error; from
  // `hangs_at` on it never answers.
  double slow_from_seconds = kNeverSeconds, slow_factor = 1;
  double fails_at_seconds = kNeverSeconds, hangs_at_seconds = kNeverSeconds;
  // A group of cores, for simulate_board (board.hpp). simulate() does not read these fields: it simulates one worker
  // with the sum of the speeds. inner_count 0: the group works on each task as one worker.
  unsigned member_count = 1, inner_count = 0;
  double spawn_seconds = 0;

  bool is_cpu() const { return name.starts_with("cpu") && latency_seconds < kLeastDeviceLatencySeconds; }
};

struct Simulation {
  std::vector<SimulatedWorker> workers;
  std::uint64_t work_bytes = 0;
  std::uint64_t chunk_bytes = 0;  // budget
  Policy policy = Policy::automatic;
  std::vector<std::pair<std::string, std::uint64_t>> resources;  // budget, automatic
  std::vector<double> link_bytes_per_second;
  std::vector<Speed> learned;  // speed of each group, from an earlier run; empty: none
  std::uint64_t seed = 0;
};

struct SimulatedTask {
  unsigned worker;
  Range range;
  double start_seconds, end_seconds;
  bool committed;
  std::uint64_t committed_bytes = 0;
};

struct SimulatedShare {
  std::string name;
  std::uint64_t bytes = 0;  // committed
  std::uint64_t task_count = 0;
  double busy_seconds = 0;       // with latency
  double idle_tail_seconds = 0;  // between its last task's end and the job's
  double bytes_per_second = 0;   // while it computed, in this run
};

struct SimulationResult {
  bool completed = false;  // false: every worker failed
  double makespan_seconds = 0;
  // (work / sum of the workers' actual speeds while they computed) / makespan.
  double efficiency = 0;
  double nominal_efficiency = 0;  // the same with the speeds in the descriptions
  std::vector<SimulatedShare> workers;
  std::vector<SimulatedTask> tasks;  // in the order of their start
  std::vector<Speed> learned;        // of each group
};

// Throws Error (INVALID_ARGUMENT) for invalid work or speeds, and for needs beyond the resources.
SimulationResult simulate(const Simulation &simulation);

}  // namespace tandem::bench
