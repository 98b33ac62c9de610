// SPDX-License-Identifier: Apache-2.0
// tandem-bench simulate
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/timeline.hpp"
#include "bench/commands.hpp"
#include "bench/simulate/board.hpp"
#include "bench/simulate/worker_text.hpp"
#include "cli/option_table.hpp"

namespace tandem::bench {

using namespace cli;

namespace {

constexpr std::size_t kMostRows = 16;  // with more workers, those of one description share a row

constexpr std::uint64_t kMostWorkBytes = std::uint64_t{1} << 60;
constexpr std::uint64_t kMostTasks = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostParts = std::uint64_t{1} << 21;              // of the tasks of groups with inner tasks
constexpr std::uint64_t kMostTasksTimesWorkers = std::uint64_t{1} << 28;  // some ten seconds
constexpr std::size_t kMostWorkersOfAuto = 512;  // its time grows with their cube: some ten seconds

constexpr const char *kFooter =
    "`tandem-bench simulate storage` is another simulator, of the cost of parity in a storage system.\n"
    "\n"
    "A worker is NAME:COUNTxGBPS, COUNT workers of GBPS each, or NAME:GROUPSxMEMBERSxGBPS, groups that split each\n"
    "task over their members. GBPS are 1e9 bytes of data per second. Then any of these (times in s, ms, us):\n"
    "  :latency=2ms          of every task, before its data\n"
    "  :jitter=0.3           a task is shorter or longer than expected by at most this part\n"
    "  :claim=N or inf       groups: tasks that each may hold before they run (budget)\n"
    "  :inner=N              groups: a task has a parent part on one core, then N inner tasks, each on one core.\n"
    "                        Latency passes before the parent part (budget). The timeline has a row for each core.\n"
    "                        With auto a group is one worker, and N does not matter\n"
    "  :spawn=TIME           of the parent part (with inner)\n"
    "  :slow=FACTOR@TIME     a task takes FACTOR times as long from TIME on\n"
    "  :fails=TIME           it fails then\n"
    "  :hangs=TIME           it hangs then: tasks that would end later never end\n"
    "  :assumed-latency=TIME latency that the scheduler assumes at first; default: none (auto)\n"
    "  :link=NAME            its data crosses this link; --link has its speed\n"
    "--policy auto finds its own sizes of chunks.\n"
    "\n"
    "The board of a report: four slow cores and a GPU. Without a limit the cores take nearly all tasks. Five "
    "tasks\n"
    "at most are better (docs/internals/FIGURE3.md):\n"
    "  for limit in 1000 5; do\n"
    "    tandem-bench simulate --worker cpu:1x4x0.253216:inner=2:spawn=0.0358s:latency=0.4s --worker gpu:1x1 \\\n"
    "      --work 684000000000 --chunk 1000000000 --policy budget --resource cpu=$limit\n"
    "  done";

struct SimulateFlags {
  std::vector<std::string> workers, resources, links;
  std::uint64_t work_bytes = std::uint64_t{8} << 30, chunk_bytes = std::uint64_t{8} << 20, seed = 0;
  std::string policy = "auto", timeline;
  bool unknown_speeds = false;
  OutputFlags output;
};

[[noreturn]] void refuse(const std::string &why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, why); }

// Groups with inner tasks that are simulated. The policy auto cuts tasks itself, for all cores of a group.
bool is_board(const Simulation &simulation) {
  return simulation.policy != Policy::automatic &&
         std::ranges::any_of(simulation.workers, [](const SimulatedWorker &each) { return each.inner_count > 0; });
}

void check_beliefs(const SimulateFlags &flags, const std::vector<SimulatedWorker> &workers) {
  if (flags.unknown_speeds)
    refuse(fmt::format("--unknown-speeds is for policy auto: {} asks for no speed", flags.policy));
  for (const SimulatedWorker &each : workers) {
    if (each.assumed_latency_seconds)
      refuse(fmt::format("worker {}: assumed-latency is for policy auto: {} asks for no latency", each.name,
                         flags.policy));
  }
}

// Of policy budget.
void check_tasks(const Simulation &simulation) {
  const std::uint64_t task_count = (simulation.work_bytes - 1) / simulation.chunk_bytes + 1;
  const std::size_t worker_count = simulation.workers.size();
  if (task_count > kMostTasks || task_count * worker_count > kMostTasksTimesWorkers)
    refuse(fmt::format(
        "{} bytes in chunks of {} are {} tasks for {} workers; at most {} tasks, and {} times the "
        "number of workers",
        simulation.work_bytes, simulation.chunk_bytes, task_count, worker_count, kMostTasks, kMostTasksTimesWorkers));
  std::uint64_t most_inner = 0;
  for (const SimulatedWorker &each : simulation.workers)
    most_inner = std::max<std::uint64_t>(most_inner, each.inner_count);
  const std::uint64_t part_count = task_count * (1 + most_inner);
  if (most_inner > 0 && (part_count > kMostParts || part_count * worker_count > kMostTasksTimesWorkers))
    refuse(
        fmt::format("{} tasks with up to {} inner tasks each are {} parts for {} workers; at most {} parts, and {} "
                    "times the number of workers",
                    task_count, most_inner, part_count, worker_count, kMostParts, kMostTasksTimesWorkers));
}

Policy policy_of(const std::string &name) { return name == "budget" ? Policy::budget : Policy::automatic; }

Simulation simulation_of(const SimulateFlags &flags, const std::vector<WorkerDescription> &descriptions) {
  Simulation simulation;
  const Links links = parse_links(fmt::format("{}", fmt::join(flags.links, ",")), descriptions);
  for (const auto &[name, bytes_per_second] : links) simulation.link_bytes_per_second.push_back(bytes_per_second);
  simulation.workers = to_workers(descriptions, links, !flags.unknown_speeds);
  simulation.policy = policy_of(flags.policy);
  simulation.resources = parse_resources(fmt::format("{}", fmt::join(flags.resources, ",")), descriptions);
  simulation.seed = flags.seed;
  simulation.work_bytes = flags.work_bytes;
  simulation.chunk_bytes = flags.chunk_bytes;
  if (flags.work_bytes > kMostWorkBytes)
    refuse(fmt::format("--work is {}, at most {}", flags.work_bytes, kMostWorkBytes));
  if (simulation.policy != Policy::automatic) {
    check_beliefs(flags, simulation.workers);
    check_tasks(simulation);
    return simulation;
  }
  if (simulation.workers.size() > kMostWorkersOfAuto)
    refuse(fmt::format("{} workers; at most {} with policy auto", simulation.workers.size(), kMostWorkersOfAuto));
  // There a group is one worker: it begins a task after latency and spawn.
  for (SimulatedWorker &each : simulation.workers) each.latency_seconds += each.spawn_seconds;
  return simulation;
}

struct SimulatedRun {
  std::vector<WorkerDescription> descriptions;
  SimulationResult result;
};

// A row for each core of a group with inner tasks, and for each other worker.
std::vector<base::TimelineRow> rows_of(const std::vector<WorkerDescription> &descriptions, bool has_cores) {
  std::vector<base::TimelineRow> rows;
  for (const WorkerDescription &each : descriptions) {
    const SimulatedWorker &worker = each.worker;
    const unsigned row_count = each.count * (has_cores && worker.inner_count > 0 ? worker.member_count : 1);
    for (unsigned i = 0; i < row_count; ++i)
      rows.push_back({row_count == 1 ? worker.name : fmt::format("{} {}", worker.name, i), worker.name});
  }
  return rows;
}

SimulatedRun simulated(const SimulateFlags &flags) {
  const std::vector<std::string_view> texts(flags.workers.begin(), flags.workers.end());
  SimulatedRun run{parse_workers(texts), {}};
  const Simulation simulation = simulation_of(flags, run.descriptions);
  std::vector<base::TimelineSpan> spans;
  if (is_board(simulation)) {
    BoardResult board = simulate_board(simulation);
    constexpr const char *kWhat[] = {"chunk", "spawn", "inner"};
    for (const BoardSpan &span : board.spans)
      spans.push_back({span.row, kWhat[static_cast<int>(span.part)], span.range.begin, span.range.end,
                       span.range.bytes(), span.start_seconds, span.end_seconds});
    run.result = std::move(board.run);
  } else {
    run.result = simulate(simulation);
    for (const SimulatedTask &task : run.result.tasks)
      spans.push_back({task.worker, "chunk", task.range.begin, task.range.end, task.range.bytes(), task.start_seconds,
                       task.end_seconds, task.committed});
  }
  const SimulationResult &result = run.result;
  if (!result.completed) {
    std::uint64_t done_bytes = 0;
    for (const SimulatedShare &each : result.workers) done_bytes += each.bytes;
    refuse(fmt::format("the job never ends: after {} s workers failed or hang, with {} of {} bytes done",
                       result.makespan_seconds, done_bytes, simulation.work_bytes));
  }
  if (!flags.timeline.empty())
    base::write_timeline(flags.timeline, rows_of(run.descriptions, is_board(simulation)), spans,
                         result.makespan_seconds, result.efficiency);
  return run;
}

// One worker, or all of one description.
struct Row {
  std::string name;
  std::uint64_t count = 0, bytes = 0, task_count = 0;
  double busy_seconds = 0, idle_tail_seconds = 0;  // the longest idle time at the end

  void add(const SimulatedShare &worker) {
    ++count;
    bytes += worker.bytes;
    task_count += worker.task_count;
    busy_seconds += worker.busy_seconds;
    idle_tail_seconds = std::max(idle_tail_seconds, worker.idle_tail_seconds);
  }
};

std::vector<Row> rows_of(const SimulatedRun &run) {
  const bool summed = run.result.workers.size() > kMostRows;
  std::vector<Row> rows;
  auto share = run.result.workers.begin();
  for (const WorkerDescription &each : run.descriptions) {
    for (unsigned i = 0; i < each.count; ++i, ++share) {
      const bool one_of_many = !summed && each.count > 1;
      if (!summed || i == 0) rows.push_back({one_of_many ? fmt::format("{} {}", share->name, i) : share->name});
      rows.back().add(*share);
    }
  }
  return rows;
}

std::string seconds_text(double seconds) {
  if (seconds >= 1 || seconds == 0) return fmt::format("{:.3f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} us", seconds * 1e6);
}

double part(double of, double whole) { return whole > 0 ? of / whole : 0; }

void print_table(const SimulateFlags &flags, const SimulatedRun &run) {
  const SimulationResult &result = run.result;
  fmt::print("{}, policy {}: {}, efficiency {:.3f}, {}\n", size(flags.work_bytes), flags.policy,
             seconds_text(result.makespan_seconds), result.efficiency, plural(result.tasks.size(), "task"));
  fmt::print("\n{:<16} {:>7} {:>8} {:>7} {:>7} {:>12}\n", "WORKER", "WORKERS", "TASKS", "SHARE", "BUSY", "IDLE TAIL");
  for (const Row &row : rows_of(run)) {
    fmt::print("{:<16} {:>7} {:>8} {:>6.1f}% {:>6.1f}% {:>12}\n", row.name, row.count, row.task_count,
               100 * part(static_cast<double>(row.bytes), static_cast<double>(flags.work_bytes)),
               100 * part(row.busy_seconds, static_cast<double>(row.count) * result.makespan_seconds),
               seconds_text(row.idle_tail_seconds));
  }
}

nlohmann::ordered_json to_json(const SimulateFlags &flags, const SimulatedRun &run) {
  nlohmann::ordered_json object = {{"command", "simulate"},
                                   {"policy", flags.policy},
                                   {"resources", flags.resources},
                                   {"links", flags.links},
                                   {"work_bytes", flags.work_bytes},
                                   {"chunk_bytes", flags.chunk_bytes},
                                   {"unknown_speeds", flags.unknown_speeds},
                                   {"seed", flags.seed},
                                   {"makespan_seconds", run.result.makespan_seconds},
                                   {"efficiency", run.result.efficiency},
                                   {"nominal_efficiency", run.result.nominal_efficiency},
                                   {"tasks", run.result.tasks.size()},
                                   {"workers", nlohmann::ordered_json::array()}};
  auto share = run.result.workers.begin();
  for (std::size_t i = 0; i < run.descriptions.size(); ++i) {
    for (unsigned n = 0; n < run.descriptions[i].count; ++n, ++share) {
      object["workers"].push_back(
          {{"name", share->name},
           {"description", flags.workers[i]},
           {"bytes", share->bytes},
           {"share", part(static_cast<double>(share->bytes), static_cast<double>(flags.work_bytes))},
           {"tasks", share->task_count},
           {"busy_seconds", share->busy_seconds},
           {"idle_tail_seconds", share->idle_tail_seconds},
           {"bytes_per_second", share->bytes_per_second}});
    }
  }
  return object;
}

int report(const SimulateFlags &flags) {
  if (flags.work_bytes == 0 || flags.chunk_bytes == 0)
    throw Failure{kExitWrongUsage, "--work and --chunk are sizes from 1 byte"};
  const SimulatedRun run = simulated(flags);
  if (flags.output.json) {
    print_json(to_json(flags, run));
  } else if (!flags.output.quiet) {
    print_table(flags, run);
    if (!flags.timeline.empty())
      fmt::print("\n{}: the timeline; ui.perfetto.dev opens it, bench/plot.py timeline draws it\n",
                 printable(flags.timeline));
  }
  return kExitDone;
}

}  // namespace

void add_simulate_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App *command = app.add_subcommand("simulate", "Simulate how CPU and devices share a job");
  command->footer(kFooter);
  command->add_option("--worker", flags->workers, "Workers, as described below (repeatable)")
      ->type_name("WORKER")
      ->allow_extra_args(false);
  command->add_option("--work", flags->work_bytes, "Data of the job")->transform(size_value())->default_str("8GiB");
  command->add_option("--chunk", flags->chunk_bytes, "Data of a task, budget only")
      ->transform(size_value())
      ->default_str("8MiB");
  command
      ->add_option("--policy", flags->policy,
                   "budget: an idle worker takes the next chunk, within --resource. auto: a worker takes a chunk only "
                   "if it will finish before the others")
      ->check(one_of({"budget", "auto"}))
      ->capture_default_str();
  command
      ->add_option("--resource", flags->resources, "At most N tasks at once of the workers of this name (repeatable)")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
  command->add_option("--link", flags->links, "Speed of a link that workers share (repeatable)")
      ->type_name("NAME=GBPS")
      ->allow_extra_args(false);
  command
      ->add_flag("--unknown-speeds", flags->unknown_speeds,
                 "auto: the scheduler must learn the speeds. It is not told those of --worker")
      ->group(kExpert);
  command->add_option("--seed", flags->seed, "Seed of the jitter")->capture_default_str()->group(kExpert);
  command
      ->add_option("--timeline", flags->timeline, "Write a timeline of all workers to this file (Chrome trace format)")
      ->type_name("FILE.json");
  add_output_flags(*command, flags->output);
#ifdef TANDEM_BENCH_HAS_VOLUME
  add_simulate_storage_command(*command, invocation);
#endif
  command->callback([command, flags, &invocation] {
    if (!command->get_subcommands().empty()) return;
    if (flags->workers.empty()) throw CLI::RequiredError("--worker");
    invocation.run = [flags] { return run_inside([&] { return report(*flags); }); };
  });
}

}  // namespace tandem::bench
