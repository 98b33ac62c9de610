// tools.h: machines that need not exist.
#include "hybrid/simulate/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/gate.hpp"
#include "base/lists.hpp"
#include "base/options.hpp"
#include "base/timeline.hpp"
#include "hybrid/simulate/worker_text.hpp"
#include "tandem/tools.h"

namespace tandem::api {
namespace {

constexpr std::uint64_t kMostWorkBytes = std::uint64_t{1} << 60;
constexpr std::uint64_t kMostTasks = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostTasksTimesWorkers = std::uint64_t{1} << 28;  // some ten seconds
constexpr std::size_t kMostWorkersOfAuto = 512;  // its time grows with their cube: some ten seconds
constexpr std::uint64_t kChunkBytes = std::uint64_t{8} << 20;

std::vector<hybrid::WorkerDescription> descriptions_of(const tandem_simulate_options &given) {
  return hybrid::parse_workers(base::read_strings(given.workers, given.worker_count, "workers", hybrid::kMostWorkers));
}

hybrid::Simulation simulation_of(const tandem_simulate_options &given,
                                 const std::vector<hybrid::WorkerDescription> &descriptions) {
  hybrid::Simulation simulation;
  simulation.workers = hybrid::to_workers(descriptions, given.unknown_speeds == 0);
  simulation.policy = hybrid::parse_policy(given.policy != nullptr ? given.policy : "auto");
  simulation.resources = hybrid::parse_resources(given.resources != nullptr ? given.resources : "", descriptions);
  simulation.seed = given.seed;
  simulation.work_bytes = given.work_bytes;
  if (given.work_bytes == 0 || given.work_bytes > kMostWorkBytes) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("work_bytes is {}, not from 1 to {}", given.work_bytes, kMostWorkBytes));
  }
  if (simulation.policy == hybrid::Policy::automatic && simulation.workers.size() > kMostWorkersOfAuto) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("{} workers; at most {} with policy auto", simulation.workers.size(), kMostWorkersOfAuto));
  }
  simulation.chunk_bytes = given.chunk_bytes != 0 ? given.chunk_bytes : kChunkBytes;
  const std::uint64_t task_count = (given.work_bytes - 1) / simulation.chunk_bytes + 1;
  if (simulation.policy != hybrid::Policy::automatic &&
      (task_count > kMostTasks || task_count * simulation.workers.size() > kMostTasksTimesWorkers)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("{} bytes in chunks of {} are {} tasks for {} workers; at most {} tasks, and {} times the "
                           "number of workers",
                           given.work_bytes, simulation.chunk_bytes, task_count, simulation.workers.size(), kMostTasks,
                           kMostTasksTimesWorkers));
  }
  return simulation;
}

void write_timeline(const char *path, const std::vector<hybrid::WorkerDescription> &descriptions,
                    const hybrid::SimulationResult &result) {
  std::vector<base::TimelineRow> rows;
  for (const hybrid::WorkerDescription &each : descriptions) {
    for (unsigned i = 0; i < each.count; ++i)
      rows.push_back({each.count == 1 ? each.name : fmt::format("{} {}", each.name, i), each.name});
  }
  std::vector<base::TimelineSpan> spans;
  for (const hybrid::SimulatedTask &task : result.tasks) {
    spans.push_back({task.worker, "chunk", task.range.begin, task.range.end, task.range.bytes(), task.start_seconds,
                     task.end_seconds, task.committed});
  }
  base::write_timeline(path, rows, spans, result.makespan_seconds, result.efficiency);
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

// What the caller sets: struct_bytes and the room for workers. The rest may be uninitialised.
tandem_simulate_result room_of(const tandem_simulate_result *given) {
  tandem_simulate_result room = {};
  constexpr std::size_t kSetBytes = offsetof(tandem_simulate_result, worker_count);
  base::check_result_size(given, "tandem_simulate_result", kSetBytes);
  std::memcpy(&room, given, kSetBytes);
  if (room.worker_capacity != 0 &&
      (room.workers == nullptr || room.worker_stride_bytes < sizeof(tandem_simulated_worker))) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT,
               fmt::format("workers is NULL, or worker_stride_bytes {} smaller than the struct: {}",
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
    const hybrid::SimulationResult result = hybrid::simulate(simulation);
    if (!result.completed) base::fail(TANDEM_ERROR_INTERNAL, "the simulated job did not come to its end");
    if (given.timeline != nullptr) api::write_timeline(given.timeline, descriptions, result);
    base::write_list(api::workers_of(descriptions, result), told.workers, told.worker_capacity,
                     told.worker_stride_bytes, &told.worker_count);
    told.task_count = result.tasks.size();
    told.makespan_seconds = result.makespan_seconds;
    told.efficiency = result.efficiency;
    told.nominal_efficiency = result.nominal_efficiency;
    base::write_result(told, result_out, "tandem_simulate_result");
  });
}
