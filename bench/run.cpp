// SPDX-License-Identifier: Apache-2.0
// tandem-bench run, hybrid, batch
#include <CLI/CLI.hpp>

#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/commands.hpp"
#include "bench/engine.hpp"
#include "cli/option_table.hpp"

namespace tandem::bench {

using namespace cli;

namespace {

struct BenchFlags {
  ContextFlags context;
  OutputFlags output;
  CodesRequest codes;
  HybridRequest hybrid;
  BatchRequest batch;
  std::vector<std::string> executors = {""}, pins = {"off"};
  std::vector<std::uint32_t> thread_counts;  // none: one thread
  std::string output_path;
};

template <class Request>
int run(const BenchFlags &flags, nlohmann::ordered_json (*measure)(const Request &, bool), const Request &request) {
  nlohmann::ordered_json object;
  try {
    object = measure(request, !flags.output.json && !flags.output.quiet);
  } catch (const EngineFailure &failure) {
    throw Failure{exit_status_of(failure.status), failure.what()};
  }
  if (flags.output.json) print_json(object);
  if (!flags.output_path.empty()) {
    std::ofstream file(flags.output_path);
    file << json_text(object);
    file.close();
    if (!file) throw Failure{kExitInputOutput, "cannot write " + flags.output_path};
  }
  return kExitDone;
}

// Why a flag of such a context would have no effect; "": each has one. 0 threads: as many as there are cores.
std::string missing_effect(const ContextFlags &context) {
  const bool is_alone = context.executor == "serial" || context.thread_count == 1;
  if (context.executor == "serial" && context.thread_count > 1) return "--threads: the executor serial has one";
  if (context.pin && (context.executor == "openmp" || is_alone))
    return "--pin on is for several threads of the executor pthread";
  return "";
}

// Every combination of the lists that has an effect.
std::vector<ContextFlags> contexts_of(const BenchFlags &flags) {
  std::vector<std::uint32_t> thread_counts = flags.thread_counts;
  // A device alone has no threads.
  if (thread_counts.empty()) thread_counts.push_back(has_cpu_threads(flags.context) ? 1 : 0);
  std::vector<ContextFlags> list;
  std::string why_not;
  for (const std::uint32_t thread_count : thread_counts) {
    for (const std::string &executor : flags.executors) {
      for (const std::string &pin : flags.pins) {
        ContextFlags context = flags.context;
        context.thread_count = thread_count;
        context.executor = executor;
        context.pin = pin == "on";
        const std::string missing = missing_effect(context);
        if (missing.empty()) {
          list.push_back(std::move(context));
        } else {
          why_not = missing;
        }
      }
    }
  }
  if (list.empty()) throw Failure{kExitWrongUsage, why_not};
  return list;
}

int run_codes(const BenchFlags &flags) {
  if (!flags.context.resources.empty()) make_context(flags.context);  // refuses resources that no task holds
  const std::vector<ContextFlags> contexts = contexts_of(flags);
  std::deque<ContextOptions> options;  // they point into themselves
  CodesRequest request = flags.codes;
  request.contexts.clear();
  for (const ContextFlags &each : contexts) request.contexts.push_back({*options.emplace_back(each).get(), each.pin});
  return run(flags, measure_codes, request);
}

int run_hybrid(const BenchFlags &flags) {
  ContextFlags context = flags.context;
  context.backend = "hybrid:" + flags.hybrid.devices;
  context.kernel = flags.hybrid.kernel;
  make_context(context);  // refuses unknown devices, kernels and resources
  HybridRequest request = flags.hybrid;
  for (const std::string &each : context.resources) request.resources += (request.resources.empty() ? "" : ",") + each;
  return run(flags, measure_hybrid, request);
}

}  // namespace

void add_hybrid_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App *command = app.add_subcommand(
      "hybrid", "Measure several devices: each alone, then together with the policies budget and auto");
  command->footer(
      "auto-first is the first call of a context that knows nothing; auto are its later calls.\n"
      "Core-seconds per GB: processor time of all threads of the process, the drivers' too, for 1e9 bytes of data.\n"
      "Efficiency: the time that the job would take at the speed of all devices together, each busy all the time (the\n"
      "saturation run), over the time that it took.\n"
      "Time/alone: over the time of the best device alone. The tuning file is neither read nor written.");
  command->add_option("--devices", flags->hybrid.devices, "One or more names of `tandem devices`, with + between")
      ->type_name("NAME+NAME")
      ->capture_default_str();
  command->add_option("--operation", flags->hybrid.operations, "What is measured; a list")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"encode", "decode"}))
      ->capture_default_str();
  command->add_option("-k", flags->hybrid.k, "Data shards")->capture_default_str();
  command->add_option("-m", flags->hybrid.m, "Parity shards")->capture_default_str();
  command
      ->add_option("--kernel", flags->hybrid.kernel, "CPU kernel to use instead of the best one; see `tandem devices`")
      ->type_name("NAME")
      ->group(kExpert);
  command
      ->add_option(
          "--resource", flags->context.resources,
          "At most N of a resource at once, but not in the run \"free\". cpu=N is the largest budget (repeatable)")
      ->type_name("NAME=N")
      ->allow_extra_args(false);
  command->add_option("--size", flags->hybrid.sizes, "Data of a job; a list; default: 4MiB,32MiB,256MiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(size_value())
      ->default_str("");
  command->add_option("--threads", flags->hybrid.thread_count, "CPU threads; default: every core");
  command
      ->add_option("--warm-up", flags->hybrid.warm_up_bytes,
                   "Least data coded with each device and policy before it is measured; default: four jobs")
      ->type_name("SIZE")
      ->transform(size_value())
      ->default_str("");
  command->add_option("--repeats", flags->hybrid.repeats, "Samples of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--seconds", flags->hybrid.slice_seconds, "Time of a sample")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command->add_option("--saturation-seconds", flags->hybrid.saturation_seconds, "Time of the saturation run")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output_path, "Also write the JSON object to this file")->type_name("FILE");
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return run_hybrid(*flags); }; });
}

void add_batch_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App *command = app.add_subcommand(
      "batch", "Measure many stripes in device memory: by one call, as one large stripe, one by one");
  command->footer(
      "together: tandem_code_batch and the wait. one stripe: a stripe of the same bytes.\n"
      "one by one: a launch for each stripe, all in the queue at once; of 256 stripes at most.\n"
      "time/one: of together, over that of one stripe. launches: of the kernel, in one call.");
  command->add_option("--backend", flags->batch.backend, "A device, such as cuda or opencl:0:0")
      ->type_name("NAME")
      ->required();
  command->add_option("--device-technique", flags->batch.technique, "How the device codes")
      ->check(one_of({"compiled", "tables", "transform"}))
      ->capture_default_str()
      ->group(kExpert);
  command->add_option("--operation", flags->batch.operations, "What is measured; a list")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"encode", "decode"}))
      ->capture_default_str();
  command->add_option("-k", flags->batch.k, "Data shards")->capture_default_str();
  command->add_option("-m", flags->batch.m, "Parity shards")->capture_default_str();
  command->add_option("--shard-bytes", flags->batch.shard_sizes, "Length of a shard; a list; default: 64KiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(size_value())
      ->default_str("");
  command->add_option("--stripes", flags->batch.stripe_count, "Number of stripes")->capture_default_str();
  command->add_option("--repeats", flags->batch.repeats, "Samples of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--seconds", flags->batch.seconds, "Time for each of the three methods of a case")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output_path, "Also write the JSON object to this file")->type_name("FILE");
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags] { return run(*flags, measure_batch, flags->batch); }; });
}

void add_run_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App &command = *app.add_subcommand("run", "Measure coding speed and compare it with the memory roof and ISA-L");
  command.footer(
      "Lists (--operation, --code, --matrix, --size, --shard-bytes, --placement, --threads, --executor, --pin)\n"
      "are axes: every combination is measured. Combinations without effect are left out.\n"
      "docs/internals/BENCHMARKS.md says what the columns mean.");
  const auto axis = [&](const std::string &name, auto &values, const std::string &help) {
    return command.add_option(name, values, help)->delimiter(',')->allow_extra_args(false);
  };
  axis("--operation", flags->codes.operations, "What is measured")
      ->check(one_of({"encode", "decode", "verify", "update", "decode-setup"}))
      ->capture_default_str();
  CLI::Option *codes =
      axis("--code", flags->codes.codes, "k+m, such as 10+4; all: the twelve codes of docs/internals/BENCHMARKS.md");
  codes->type_name("K+M");
  command.add_option("-k", flags->codes.k, "Data shards")->capture_default_str()->excludes(codes);
  command.add_option("-m", flags->codes.m, "Parity shards")->capture_default_str()->excludes(codes);
  axis("--matrix", flags->codes.matrices, "Generator matrix")
      ->check(matrix_value(MatrixUse::sets))
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--layout", flags->codes.layout, "Order of the elements in a shard; packets: Jerasure's Cauchy codes")
      ->check(one_of({"bytes", "packets"}))
      ->capture_default_str()
      ->group(kExpert);
  command.add_option("--word-bits", flags->codes.word_bits, "packets: bits of a word, 4, 8 or 16; default: 8")
      ->group(kExpert);
  command.add_option("--packet-bytes", flags->codes.packet_bytes, "packets: bytes of a packet, a multiple of 8")
      ->transform(size_value())
      ->group(kExpert);
  axis("--size", flags->codes.sizes,
       "Working set of a stripe (in cache: of each thread), data and parity; default: 512KiB,4MiB")
      ->transform(size_value());
  axis("--shard-bytes", flags->codes.shard_sizes, "Length of a shard, in place of --size")->transform(size_value());
  command
      .add_option("--rotate", flags->codes.rotate_bytes, "Memory through which stripes larger than the L2 cache rotate")
      ->transform(size_value())
      ->default_str("256MiB")
      ->group(kExpert);
  axis("--placement", flags->codes.placements, "Where the shards lie")
      ->check(one_of({"contiguous", "scattered", "page-aligned", "malloc"}))
      ->capture_default_str()
      ->group(kExpert);
  command.add_flag("--odd", flags->codes.odd, "Odd lengths at odd addresses")->group(kExpert);
  command
      .add_option("--lost", flags->codes.lost, "decode: which m shards are lost, the first data shards or random ones")
      ->check(one_of({"first", "random"}))
      ->capture_default_str()
      ->group(kExpert);
  add_context_flags(command, flags->context);
  for (const char *of_one : {"--timeline", "--force"})  // it makes many contexts, and each would write the file
    command.remove_option(command.get_option(of_one));
  for (const char *becomes_a_list : {"--threads", "--executor", "--pin"})
    command.remove_option(command.get_option(becomes_a_list));
  axis("--threads", flags->thread_counts, "CPU threads, the same number for the peer and the roof; 0: every core")
      ->default_str("1");
  axis("--executor", flags->executors, "How work is spread over CPU threads")
      ->check(one_of(executor_names()))
      ->group(kExpert);
  axis("--pin", flags->pins, "Whether each thread of the executor pthread is pinned to a core")
      ->check(one_of({"off", "on"}))
      ->capture_default_str()
      ->group(kExpert);
  command
      .add_option("--peer", flags->codes.peer,
                  "A libisal.so to compare with, jerasure (libJerasure.so.2), or none; default: the libisal.so that is "
                  "installed")
      ->type_name("PATH");
  command
      .add_option("--peer-function", flags->codes.peer_function,
                  "Encoder of the peer, such as ec_encode_data_avx2; default: the peer's own choice")
      ->type_name("NAME")
      ->group(kExpert);
  command
      .add_option("--clock", flags->codes.clock,
                  "wall, or cpu: the processor time of one thread, for machines that are shared")
      ->check(one_of({"wall", "cpu"}))
      ->capture_default_str()
      ->group(kExpert);
  command.add_option("--repeats", flags->codes.repeats, "Samples of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      .add_option("--seconds", flags->codes.seconds,
                  "Time for each contestant of a case: Tandem, the peer, each roof loop")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command.add_flag(
      "--energy", flags->codes.energy,
      "Also measure joules: powercap (RAPL), else perf's power events; NVML for GPUs. At least 30 samples");
  command.add_option("--sysfs", flags->codes.sysfs, "The folder in place of /sys, where energy counters are")
      ->capture_default_str()
      ->group(kExpert);
  command.add_option("--seed", flags->codes.seed, "For random places and losses")
      ->capture_default_str()
      ->group(kExpert);
  command.add_option("-o,--output", flags->output_path, "Also write the JSON object to this file")->type_name("FILE");
  add_output_flags(command, flags->output);
  command.callback([flags, &invocation] { invocation.run = [flags] { return run_codes(*flags); }; });
}

}  // namespace tandem::bench
