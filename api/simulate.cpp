// SPDX-License-Identifier: Apache-2.0
// tools.h: simulation of machines that need not exist.
#include "hybrid/simulate/simulate.hpp"
#include "base/format.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/gate.hpp"
#include "base/lists.hpp"
#include "base/options.hpp"
#include "base/timeline.hpp"
#include "hybrid/simulate/board.hpp"
#include "hybrid/simulate/worker_text.hpp"
#include "tandem/tools.h"

namespace tandem::api {
namespace {

constexpr std::uint64_t kMostWorkBytes = std::uint64_t{1} << 60;
constexpr std::uint64_t kMostTasks = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostParts = std::uint64_t{1} << 21;              // of the tasks of groups with inner tasks
constexpr std::uint64_t kMostTasksTimesWorkers = std::uint64_t{1} << 28;  // some ten seconds
constexpr std::size_t kMostWorkersOfAuto = 512;  // its time grows with their cube: some ten seconds
constexpr std::uint64_t kChunkBytes = std::uint64_t{8} << 20;

std::vector<hybrid::WorkerDescription> descriptions_of(const tandem_simulate_options &given) {
  return hybrid::parse_workers(base::read_strings(given.workers, given.worker_count, "workers", hybrid::kMostWorkers));
}

// Groups with inner tasks that are simulated. The policy auto cuts tasks itself, for all cores of a group.
bool is_board(const hybrid::Simulation &simulation) {
  return simulation.policy != hybrid::Policy::automatic &&
         std::any_of(simulation.workers.begin(), simulation.workers.end(),
                     [](const hybrid::SimulatedWorker &each) { return each.inner_count > 0; });
}

void check_beliefs(const tandem_simulate_options &given, const std::vector<hybrid::WorkerDescription> &descriptions) {
  if (given.unknown_speeds != 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("unknown_speeds is for policy auto: {} asks for no speed", given.policy));
  }
  for (const hybrid::WorkerDescription &each : descriptions) {
    if (!each.assumed_latency_seconds) continue;
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("worker {}: assumed-latency is for policy auto: {} asks for no "
                            "latency",
                            each.name, given.policy));
  }
}

void check_board_size(const hybrid::Simulation &simulation, std::uint64_t task_count) {
  std::uint64_t most_inner = 0;
  for (const hybrid::SimulatedWorker &each : simulation.workers)
    most_inner = std::max<std::uint64_t>(most_inner, each.inner_count);
  const std::uint64_t part_count = task_count * (1 + most_inner);
  if (part_count <= kMostParts && part_count * simulation.workers.size() <= kMostTasksTimesWorkers) return;
  base::fail(
      TANDEM_ERROR_INVALID_ARGUMENT,
      base::format("{} tasks with up to {} inner tasks each are {} parts for {} workers; at most {} parts, and {} "
                   "times the number of workers",
                   task_count, most_inner, part_count, simulation.workers.size(), kMostParts, kMostTasksTimesWorkers));
}

hybrid::Simulation simulation_of(const tandem_simulate_options &given,
                                 const std::vector<hybrid::WorkerDescription> &descriptions) {
  hybrid::Simulation simulation;
  const hybrid::Links links = hybrid::parse_links(given.links != nullptr ? given.links : "", descriptions);
  for (const auto &[name, bytes_per_second] : links) simulation.link_bytes_per_second.push_back(bytes_per_second);
  simulation.workers = hybrid::to_workers(descriptions, links, given.unknown_speeds == 0);
  simulation.policy = hybrid::parse_policy(given.policy != nullptr ? given.policy : "auto");
  simulation.resources = hybrid::parse_resources(given.resources != nullptr ? given.resources : "", descriptions);
  simulation.seed = given.seed;
  simulation.work_bytes = given.work_bytes;
  if (given.work_bytes == 0 || given.work_bytes > kMostWorkBytes) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("work_bytes is {}, not from 1 to {}", given.work_bytes, kMostWorkBytes));
  }
  if (simulation.policy == hybrid::Policy::automatic) {
    // There a group is one worker: it begins a task after latency and spawn.
    for (hybrid::SimulatedWorker &each : simulation.workers) each.latency_seconds += each.spawn_seconds;
  } else {
    check_beliefs(given, descriptions);
  }
  if (simulation.policy == hybrid::Policy::automatic && simulation.workers.size() > kMostWorkersOfAuto) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("{} workers; at most {} with policy auto", simulation.workers.size(), kMostWorkersOfAuto));
  }
  simulation.chunk_bytes = given.chunk_bytes != 0 ? given.chunk_bytes : kChunkBytes;
  const std::uint64_t task_count = (given.work_bytes - 1) / simulation.chunk_bytes + 1;
  if (simulation.policy != hybrid::Policy::automatic &&
      (task_count > kMostTasks || task_count * simulation.workers.size() > kMostTasksTimesWorkers)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("{} bytes in chunks of {} are {} tasks for {} workers; at most {} tasks, and {} times the "
                            "number of workers",
                            given.work_bytes, simulation.chunk_bytes, task_count, simulation.workers.size(), kMostTasks,
                            kMostTasksTimesWorkers));
  }
  if (is_board(simulation)) check_board_size(simulation, task_count);
  return simulation;
}

struct Outcome {
  hybrid::SimulationResult result;
  std::vector<base::TimelineSpan> spans;
};

Outcome run(const hybrid::Simulation &simulation) {
  Outcome outcome;
  if (is_board(simulation)) {
    hybrid::BoardResult board = hybrid::simulate_board(simulation);
    constexpr const char *kWhat[] = {"chunk", "spawn", "inner"};
    for (const hybrid::BoardSpan &span : board.spans) {
      outcome.spans.push_back({span.row, kWhat[static_cast<int>(span.part)], span.range.begin, span.range.end,
                               span.range.bytes(), span.start_seconds, span.end_seconds});
    }
    outcome.result = std::move(board.run);
  } else {
    outcome.result = hybrid::simulate(simulation);
    for (const hybrid::SimulatedTask &task : outcome.result.tasks) {
      outcome.spans.push_back({task.worker, "chunk", task.range.begin, task.range.end, task.range.bytes(),
                               task.start_seconds, task.end_seconds, task.committed});
    }
  }
  const hybrid::SimulationResult &result = outcome.result;
  if (!result.completed) {
    std::uint64_t done_bytes = 0;
    for (const hybrid::SimulatedShare &each : result.workers) done_bytes += each.bytes;
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("the job never ends: after {} s workers failed or hang, with {} of {} bytes done",
                            result.makespan_seconds, done_bytes, simulation.work_bytes));
  }
  return outcome;
}

// A row for each core of a group with inner tasks, and for each other worker.
std::vector<base::TimelineRow> rows_of(const std::vector<hybrid::WorkerDescription> &descriptions, bool is_board) {
  std::vector<base::TimelineRow> rows;
  for (const hybrid::WorkerDescription &each : descriptions) {
    const unsigned row_count = each.count * (is_board && each.inner_count > 0 ? each.members : 1);
    for (unsigned i = 0; i < row_count; ++i)
      rows.push_back({row_count == 1 ? each.name : base::format("{} {}", each.name, i), each.name});
  }
  return rows;
}

std::vector<tandem_simulated_worker> workers_of(const std::vector<hybrid::WorkerDescription> &descriptions,
                                                const hybrid::SimulationResult &result) {
  std::vector<tandem_simulated_worker> workers;
  auto share = result.workers.begin();
  for (std::uint32_t i = 0; i < descriptions.size(); ++i) {
    for (unsigned n = 0; n < descriptions[i].count; ++n, ++share) {
      tandem_simulated_worker worker = {};
      base::copy_text(worker.name, share->name);
      worker.description = i;
      worker.bytes = share->bytes;
      worker.task_count = share->task_count;
      worker.busy_seconds = share->busy_seconds;
      worker.idle_tail_seconds = share->idle_tail_seconds;
      worker.bytes_per_second = share->bytes_per_second;
      workers.push_back(worker);
    }
  }
  return workers;
}

// The caller sets struct_bytes and the array of workers. The rest may be uninitialised.
tandem_simulate_result room_of(const tandem_simulate_result *given) {
  tandem_simulate_result room = {};
  constexpr std::size_t kSetBytes = offsetof(tandem_simulate_result, worker_count);
  base::check_result_size(given, "tandem_simulate_result", kSetBytes);
  std::memcpy(&room, given, kSetBytes);
  if (room.worker_capacity != 0 &&
      (room.workers == nullptr || room.worker_stride_bytes < sizeof(tandem_simulated_worker))) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               base::format("workers is NULL, or worker_stride_bytes {} smaller than the struct: {}",
                            room.worker_stride_bytes, sizeof(tandem_simulated_worker)));
  }
  return room;
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" tandem_status tandem_simulate(const tandem_simulate_options *options, tandem_simulate_result *result_out) {
  return base::guarded({{"options", options}, {"result_out", result_out}}, [&] {
    const auto given = base::read_options(options, "tandem_simulate_options");
    tandem_simulate_result told = api::room_of(result_out);
    const std::vector<hybrid::WorkerDescription> descriptions = api::descriptions_of(given);
    const hybrid::Simulation simulation = api::simulation_of(given, descriptions);
    const auto [result, spans] = api::run(simulation);
    if (given.timeline != nullptr) {
      const std::vector<base::TimelineRow> rows = api::rows_of(descriptions, api::is_board(simulation));
      base::write_timeline(given.timeline, rows, spans, result.makespan_seconds, result.efficiency);
    }
    base::write_list(api::workers_of(descriptions, result), told.workers, told.worker_capacity,
                     told.worker_stride_bytes, &told.worker_count);
    told.task_count = result.tasks.size();
    told.makespan_seconds = result.makespan_seconds;
    told.efficiency = result.efficiency;
    told.nominal_efficiency = result.nominal_efficiency;
    base::write_result(told, result_out, "tandem_simulate_result");
  });
}
