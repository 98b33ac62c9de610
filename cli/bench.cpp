// tandem bench
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>

#include "cli/bench_case.hpp"
#include "cli/bench_hybrid.hpp"
#include "cli/bench_report.hpp"
#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// The codes that the project's figures are about.
constexpr std::pair<unsigned, unsigned> kCodes[] = {{4, 2},  {6, 3},   {8, 4},  {10, 4},  {12, 4},  {16, 4},
                                                    {10, 8}, {20, 10}, {32, 8}, {32, 32}, {64, 16}, {128, 32}};

struct BenchFlags {
  ContextFlags context;
  OutputFlags output;
  std::vector<std::string> operations = {"encode"};
  std::vector<std::string> codes;
  unsigned k = 10, m = 4;
  std::vector<std::string> matrices = {"isal-cauchy"};
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> shard_sizes;
  std::size_t rotate_bytes = 256 * kMiB;
  std::vector<std::string> placements = {"contiguous"};
  bool odd = false;
  std::string lost = "first";
  std::string partition = "column";
  std::string peer, peer_function;
  std::string clock = "wall";
  unsigned repeats = 51;
  double seconds = 0.25;
  std::uint64_t seed = 1;
  std::string output_path;
};

[[noreturn]] void refuse(std::string message) { throw Failure{kExitWrongUsage, std::move(message)}; }

std::vector<std::pair<unsigned, unsigned>> codes_of(const BenchFlags &flags) {
  std::vector<std::pair<unsigned, unsigned>> codes;
  if (flags.codes.empty()) codes.emplace_back(flags.k, flags.m);
  for (const std::string &text : flags.codes) {
    if (text == "all") {
      codes.insert(codes.end(), std::begin(kCodes), std::end(kCodes));
      continue;
    }
    unsigned k = 0, m = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%3u+%3u%n", &k, &m, &used) != 2 || static_cast<std::size_t>(used) != text.size())
      refuse(fmt::format("--code {}: write it as 10+4, or all", text));
    codes.emplace_back(k, m);
  }
  for (const auto &[k, m] : codes) {
    if (k == 0 || m == 0) refuse(fmt::format("code {}+{}: there is nothing to compute", k, m));
  }
  return codes;
}

// Shards of a working set, a whole number of cache lines; odd ones a byte less than that.
std::size_t shard_bytes_of(std::size_t size_bytes, std::size_t shard_count, bool odd) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t lines = size_bytes / shard_count / kLineBytes;
  const std::size_t bytes = lines * kLineBytes - (odd ? 1 : 0);
  if (lines == 0) refuse(fmt::format("--size {} is less than 64 bytes for each of {} shards", size_bytes, shard_count));
  return bytes;
}

// What fits a core's second-level cache is coded in place, again and again; anything else takes turns over
// rotate_bytes.
std::size_t stripe_count_of(std::size_t stripe_bytes, std::size_t rotate_bytes, const Machine &machine,
                            unsigned thread_count) {
  const std::size_t l2_bytes = machine.l2_bytes != 0 ? machine.l2_bytes : kMiB;
  return stripe_bytes <= l2_bytes * thread_count ? 1 : std::max<std::size_t>(1, rotate_bytes / stripe_bytes);
}

// Every combination of the axes; the code moves fastest, so that a table has one heading for all codes.
std::vector<BenchCase> cases_of(const BenchFlags &flags, const Machine &machine, unsigned thread_count) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase at, std::size_t stripe_bytes) {
    at.stripe_count = stripe_count_of(stripe_bytes, flags.rotate_bytes, machine, thread_count);
    cases.push_back(at);
  };
  const auto codes = codes_of(flags);
  for (const std::string &operation : flags.operations) {
    for (const std::string &matrix : flags.matrices) {
      BenchCase at;
      at.operation = operation_from_name(operation);
      check(tandem_matrix_from_name(matrix.c_str(), &at.matrix));
      at.odd = flags.odd;
      at.loss = flags.lost == "random" ? Loss::random : Loss::first;
      if (at.operation == BenchOperation::decode_setup) {
        for (const auto &[k, m] : codes) {
          at.k = k;
          at.m = m;
          cases.push_back(at);
        }
        continue;
      }
      for (const std::string &placement : flags.placements) {
        at.placement = placement_from_name(placement);
        for (const std::size_t size : flags.sizes) {
          for (const auto &[k, m] : codes) {
            at.k = k;
            at.m = m;
            // In cache the size is a thread's: each core has a cache of its own.
            const bool in_cache = stripe_count_of(size, flags.rotate_bytes, machine, 1) == 1;
            at.size_bytes = in_cache ? size * thread_count : size;
            at.shard_bytes = shard_bytes_of(at.size_bytes, std::size_t{k} + m, flags.odd);
            add(at, at.size_bytes);
          }
        }
        at.size_bytes = 0;
        for (const std::size_t shard_size : flags.shard_sizes) {
          if (shard_size == 0) refuse("--shard-bytes is 0");
          for (const auto &[k, m] : codes) {
            at.k = k;
            at.m = m;
            at.shard_bytes = flags.odd ? (shard_size - 1) | 1 : shard_size;
            add(at, shard_size * (std::size_t{k} + m));
          }
        }
      }
    }
  }
  return cases;
}

BenchSettings settings_of(const BenchFlags &flags) {
  BenchSettings settings;
  settings.context = flags.context;
  settings.context.partition = flags.partition == "parity" ? TANDEM_PARTITION_PARITY : TANDEM_PARTITION_COLUMN;
  settings.clock = flags.clock == "cpu" ? BenchClock::cpu : BenchClock::wall;
  settings.repeats = flags.repeats;
  settings.seconds = flags.seconds;
  settings.seed = flags.seed;
  if (flags.peer != "none") {
    try {
      settings.peer = Peer::open(flags.peer, flags.peer_function);
    } catch (const std::runtime_error &error) {
      refuse(error.what());
    }
  }
  return settings;
}

int bench(BenchFlags flags) {
  const BenchSettings settings = settings_of(flags);
  const Context context = make_context(settings.context);
  const tandem_context_info info = query(context);
  if (settings.clock == BenchClock::cpu && info.thread_count > 1)
    refuse(fmt::format("--clock cpu counts the calling thread alone, and there are {}", info.thread_count));
  const Machine machine = this_machine();
  if (flags.sizes.empty() && flags.shard_sizes.empty()) flags.sizes = {512 * 1024, 4 * kMiB};

  const std::vector<BenchCase> cases = cases_of(flags, machine, info.thread_count);
  std::vector<BenchResult> results;
  BenchTable table;
  const bool show = !flags.output.json && !flags.output.quiet;
  if (show) table.begin(machine, settings, info);
  for (const BenchCase &at : cases) {
    results.push_back(run_case(at, settings));
    if (show) table.add(results.back());
  }
  const std::string json = bench_json(machine, settings, info, results);
  if (flags.output.json) fmt::print("{}\n", json);
  if (!flags.output_path.empty()) {
    std::ofstream file(flags.output_path);
    file << json << '\n';
    file.close();
    if (!file) throw Failure{kExitInputOutput, fmt::format("cannot write {}", flags.output_path)};
  }
  return kExitDone;
}

}  // namespace

void add_bench_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App &command = *app.add_subcommand("bench", "Measure coding speed, next to the memory roof and to ISA-L");
  command.footer(
      "Lists (--operation, --code, --matrix, --size, --shard-bytes, --placement) are axes: every combination is "
      "measured.\n"
      "docs/internals/BENCHMARKS.md says what the columns mean.");
  const auto axis = [&](const std::string &name, auto &values, const std::string &help) {
    return command.add_option(name, values, help)->delimiter(',')->allow_extra_args(false);
  };
  axis("--operation", flags->operations, "What is measured")
      ->check(CLI::IsMember({"encode", "decode", "verify", "update", "decode-setup"}))
      ->capture_default_str();
  CLI::Option *codes =
      axis("--code", flags->codes, "k+m, such as 10+4, or all: the twelve of docs/internals/BENCHMARKS.md");
  command.add_option("-k", flags->k, "Data shards")->capture_default_str()->excludes(codes);
  command.add_option("-m", flags->m, "Parity shards")->capture_default_str()->excludes(codes);
  axis("--matrix", flags->matrices, "Generator matrix")->capture_default_str();
  axis("--size", flags->sizes,
       "Working set of a stripe (in cache: of each thread), data and parity; default: 512KiB,4MiB")
      ->transform(CLI::AsSizeValue(false));
  axis("--shard-bytes", flags->shard_sizes, "Length of a shard, in place of --size")
      ->transform(CLI::AsSizeValue(false));
  command.add_option("--rotate", flags->rotate_bytes, "Memory over which stripes larger than the L2 cache take turns")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256MiB");
  axis("--placement", flags->placements, "Where the shards lie")
      ->check(CLI::IsMember({"contiguous", "scattered", "page-aligned"}))
      ->capture_default_str();
  command.add_flag("--odd", flags->odd, "Odd lengths at odd addresses");
  command.add_option("--lost", flags->lost, "decode: which m shards are lost, the first data shards or random ones")
      ->check(CLI::IsMember({"first", "random"}))
      ->capture_default_str();
  add_context_flags(command, flags->context);
  flags->context.thread_count = 1;
  command.get_option("--threads")
      ->description("Threads, the same number for the peer and the roof; 0: every core")
      ->default_str("1");
  command.add_option("--partition", flags->partition, "What a thread takes: a range of columns, or some parity shards")
      ->check(CLI::IsMember({"column", "parity"}))
      ->capture_default_str();
  command.add_option("--peer", flags->peer,
                     "A libisal.so to compare with, or none; default: the one that is installed");
  command.add_option("--peer-function", flags->peer_function,
                     "One of its encoders, such as ec_encode_data_avx2; default: the one that it chooses");
  command
      .add_option("--clock", flags->clock, "wall; or cpu, one thread's own time, for a machine that others use, too")
      ->check(CLI::IsMember({"wall", "cpu"}))
      ->capture_default_str();
  command.add_option("--repeats", flags->repeats, "Samples of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command
      .add_option("--seconds", flags->seconds, "Time for each contestant of a case: Tandem, the peer, each roof loop")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "For random places and losses")->capture_default_str();
  command.add_option("-o,--output", flags->output_path, "Write the JSON object to this file, too");
  add_output_flags(command, flags->output);
  const CLI::App *hybrid = add_bench_hybrid_command(command, invocation);
  command.callback([flags, hybrid, &invocation] {
    if (!hybrid->parsed()) invocation.run = [flags] { return bench(*flags); };
  });
}

}  // namespace tandem::cli
