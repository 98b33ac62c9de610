// SPDX-License-Identifier: Apache-2.0
// tandem-bench simulate
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/commands.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"

namespace tandem::bench {

using namespace cli;

namespace {

constexpr std::size_t kMostRows = 16;  // with more workers, those of one description share a row

constexpr const char *kFooter =
    "`tandem-bench simulate storage` is another simulator, of the cost of parity in a storage system.\n"
    "\n"
    "A worker is NAME:COUNTxGBPS, COUNT workers of GBPS each, or NAME:GROUPSxMEMBERSxGBPS, groups that split each\n"
    "task over their members. GBPS are 1e9 bytes of data per second. Then any of these (times in s, ms, us):\n"
    "  :latency=2ms          of every task, before its data\n"
    "  :jitter=0.3           a task is shorter or longer than expected by at most this part\n"
    "  :claim=N or inf       groups: tasks that each may hold before they run (free and budget)\n"
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
    "The board of a report: four slow cores and a GPU. Left free, the cores take nearly all tasks. A limit of five "
    "tasks\n"
    "is better (docs/FIGURE3.md):\n"
    "  for policy in free budget auto; do\n"
    "    tandem-bench simulate --worker cpu:1x4x0.253216:inner=2:spawn=0.0358s:latency=0.4s --worker gpu:1x1 \\\n"
    "      --work 684000000000 --chunk 1000000000 --policy $policy --resource cpu=5\n"
    "  done";

struct SimulateFlags {
  std::vector<std::string> workers, resources, links;
  std::uint64_t work_bytes = std::uint64_t{8} << 30, chunk_bytes = std::uint64_t{8} << 20, seed = 0;
  std::string policy = "auto", timeline;
  bool unknown_speeds = false;
  OutputFlags output;
};

struct SimulatedRun {
  tandem_simulate_result result = {};
  std::vector<tandem_simulated_worker> workers;
};

std::string with_commas(const std::vector<std::string> &list) {
  std::string text;
  for (const std::string &each : list) text += (text.empty() ? "" : ",") + each;
  return text;
}

SimulatedRun simulate(const SimulateFlags &flags) {
  const std::vector<const char *> workers = pointers(flags.workers);
  const std::string resources = with_commas(flags.resources), links = with_commas(flags.links);
  auto options = sized<tandem_simulate_options>();
  options.workers = workers.data();
  options.worker_count = workers.size();
  options.work_bytes = flags.work_bytes;
  options.chunk_bytes = flags.chunk_bytes;
  options.policy = flags.policy.c_str();
  if (!flags.resources.empty()) options.resources = resources.c_str();
  if (!flags.links.empty()) options.links = links.c_str();
  options.seed = flags.seed;
  options.unknown_speeds = flags.unknown_speeds;
  if (!flags.timeline.empty()) options.timeline = flags.timeline.c_str();
  SimulatedRun run;
  run.workers.resize(4096);  // the most that a run can have
  run.result.struct_bytes = sizeof run.result;
  run.result.workers = run.workers.data();
  run.result.worker_capacity = run.workers.size();
  run.result.worker_stride_bytes = sizeof run.workers[0];
  check(tandem_simulate(&options, &run.result));
  run.workers.resize(run.result.worker_count);
  return run;
}

// One worker, or all of one description.
struct Row {
  std::string name;
  std::uint64_t count = 0, bytes = 0, task_count = 0;
  double busy_seconds = 0, idle_tail_seconds = 0;  // the longest idle time at the end

  void add(const tandem_simulated_worker &worker) {
    ++count;
    bytes += worker.bytes;
    task_count += worker.task_count;
    busy_seconds += worker.busy_seconds;
    idle_tail_seconds = std::max(idle_tail_seconds, worker.idle_tail_seconds);
  }
};

std::vector<Row> rows_of(const SimulateFlags &flags, const SimulatedRun &run) {
  std::vector<std::uint64_t> counts(flags.workers.size());
  for (const tandem_simulated_worker &each : run.workers) ++counts[each.description];
  const bool summed = run.workers.size() > kMostRows;
  std::vector<Row> rows;
  std::uint32_t description = 0, index = 0;
  for (const tandem_simulated_worker &each : run.workers) {
    if (rows.empty() || each.description != description) index = 0;
    if (!summed || index == 0) {
      const bool one_of_many = !summed && counts[each.description] > 1;
      rows.push_back({one_of_many ? fmt::format("{} {}", each.name, index) : std::string(each.name)});
    }
    description = each.description;
    ++index;
    rows.back().add(each);
  }
  return rows;
}

std::string seconds_text(double seconds) {
  if (seconds >= 1 || seconds == 0) return fmt::format("{:.3f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} us", seconds * 1e6);
}

double part(double of, double whole) { return whole > 0 ? of / whole : 0; }

void print_table(const SimulateFlags &flags, const SimulatedRun &run) {
  const tandem_simulate_result &result = run.result;
  fmt::print("{}, policy {}: {}, efficiency {:.3f}, {}\n", size(flags.work_bytes), flags.policy,
             seconds_text(result.makespan_seconds), result.efficiency, plural(result.task_count, "task"));
  if (flags.policy == "free" && !flags.resources.empty()) fmt::print("resources do not count with policy free\n");
  fmt::print("\n{:<16} {:>7} {:>8} {:>7} {:>7} {:>12}\n", "WORKER", "WORKERS", "TASKS", "SHARE", "BUSY", "IDLE TAIL");
  for (const Row &row : rows_of(flags, run)) {
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
                                   {"tasks", run.result.task_count},
                                   {"workers", nlohmann::ordered_json::array()}};
  for (const tandem_simulated_worker &each : run.workers) {
    object["workers"].push_back(
        {{"name", each.name},
         {"description", flags.workers[each.description]},
         {"bytes", each.bytes},
         {"share", part(static_cast<double>(each.bytes), static_cast<double>(flags.work_bytes))},
         {"tasks", each.task_count},
         {"busy_seconds", each.busy_seconds},
         {"idle_tail_seconds", each.idle_tail_seconds},
         {"bytes_per_second", each.bytes_per_second}});
  }
  return object;
}

int report(const SimulateFlags &flags) {
  if (flags.work_bytes == 0 || flags.chunk_bytes == 0)
    throw Failure{kExitWrongUsage, "--work and --chunk are sizes from 1 byte"};
  const SimulatedRun run = simulate(flags);
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
  CLI::App *command =
      app.add_subcommand("simulate", "Simulate how workers share a job, on a machine that need not exist");
  command->footer(kFooter);
  command->add_option("--worker", flags->workers, "Workers, as described below (repeatable)")
      ->type_name("WORKER")
      ->allow_extra_args(false);
  command->add_option("--work", flags->work_bytes, "Data of the job")->transform(size_value())->default_str("8GiB");
  command->add_option("--chunk", flags->chunk_bytes, "Data of a task, free and budget only")
      ->transform(size_value())
      ->default_str("8MiB");
  command
      ->add_option("--policy", flags->policy,
                   "free: an idle worker takes the next chunk. budget: the same within --resource. auto: a worker "
                   "takes a chunk only if it will finish before the others")
      ->check(one_of({"free", "budget", "auto"}))
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
#ifdef TANDEM_BENCH_HAS_VOLUME  // the model asks libtandem_volume which I/Os a write costs
  add_simulate_storage_command(*command, invocation);
#endif
  command->callback([command, flags, &invocation] {
    if (!command->get_subcommands().empty()) return;
    if (flags->workers.empty()) throw CLI::RequiredError("--worker");
    invocation.run = [flags] { return report(*flags); };
  });
}

}  // namespace tandem::bench
