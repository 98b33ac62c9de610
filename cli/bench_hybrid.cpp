#include "cli/bench_hybrid.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/bench_codec.hpp"
#include "cli/bench_machine.hpp"
#include "cli/bench_measure.hpp"
#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

constexpr std::size_t kMostBudgets = 64;

struct HybridFlags {
  std::string devices = "cpu+opencl:0:0";
  unsigned k = 10, m = 4;
  std::vector<std::size_t> sizes = {std::size_t{4} << 20, std::size_t{32} << 20, std::size_t{256} << 20};
  std::uint32_t thread_count = 0;
  unsigned repeats = 15;
  double slice_seconds = 0.05, saturation_seconds = 1;
  std::string output_path;
  OutputFlags output;
};

struct Free {
  void operator()(void *memory) const noexcept { std::free(memory); }
};

// One stripe, in memory that was touched.
class Stripe {
 public:
  Stripe(unsigned k, unsigned m, std::size_t shard_bytes) : shard_bytes_(shard_bytes) {
    constexpr std::size_t kPage = 4096;
    const std::size_t stride = (shard_bytes + kPage - 1) / kPage * kPage, total = stride * (std::size_t{k} + m);
    memory_.reset(static_cast<std::uint8_t *>(std::aligned_alloc(kPage, total)));
    if (memory_ == nullptr) throw std::bad_alloc();
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i < total; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::copy_n(reinterpret_cast<const std::uint8_t *>(&word), sizeof word, memory_.get() + i);
    }
    for (unsigned i = 0; i < k; ++i) data_.push_back(memory_.get() + i * stride);
    for (unsigned i = 0; i < m; ++i) parity_.push_back(memory_.get() + (std::size_t{k} + i) * stride);
  }

  void encode(const Context &context, const Codec &codec) const {
    check(tandem_encode(context.get(), codec.get(), data_.data(), parity_.data(), shard_bytes_));
  }

 private:
  std::size_t shard_bytes_;
  std::unique_ptr<std::uint8_t, Free> memory_;
  std::vector<const void *> data_;
  std::vector<void *> parity_;
};

// Somebody who encodes: one device, or the hybrid with a policy. `amount` is of "cpu", in a budget.
struct Runner {
  std::string kind, name;
  std::uint64_t amount = 0;
  Context context;
};

Runner runner(const HybridFlags &flags, std::string kind, const std::string &backend, const std::string &policy,
              std::uint64_t amount) {
  ContextFlags context;
  context.backend = backend;
  context.policy = policy;
  context.thread_count = flags.thread_count;
  Runner made{std::move(kind), policy.empty() ? backend : policy, amount, make_context(context)};
  if (amount != 0) {
    made.name = fmt::format("cpu={}", amount);
    check(tandem_context_set_resource(made.context.get(), "cpu", amount));
  }
  return made;
}

std::vector<std::string> split(const std::string &devices) {
  std::vector<std::string> names;
  for (std::size_t at = 0;;) {
    const std::size_t plus = devices.find('+', at);
    names.push_back(devices.substr(at, plus - at));
    if (plus == std::string::npos) return names;
    at = plus + 1;
  }
}

// Every device for itself first.
std::vector<Runner> runners_of(const HybridFlags &flags) {
  const std::vector<std::string> names = split(flags.devices);
  const std::string hybrid = "hybrid:" + flags.devices;
  std::vector<Runner> runners;
  std::uint64_t lanes = 0;
  for (const std::string &name : names) {
    runners.push_back(runner(flags, "alone", name, "", 0));
    if (name == "cpu") lanes = query(runners.back().context).thread_count;
  }
  runners.push_back(runner(flags, "free", hybrid, "free", 0));
  for (std::uint64_t amount = 1; amount <= std::min<std::uint64_t>(lanes, kMostBudgets); ++amount)
    runners.push_back(runner(flags, "budget", hybrid, "budget", amount));
  runners.push_back(runner(flags, "auto", hybrid, "auto", 0));
  return runners;
}

// All devices at once, each on a stripe of its own and over and over: what they do together when nobody waits for an
// end. Bytes of data per second of each.
std::vector<double> saturate(const HybridFlags &flags, const std::vector<Runner> &runners, std::size_t device_count,
                             const Codec &codec, std::size_t shard_bytes) {
  std::vector<Stripe> stripes;
  for (std::size_t i = 0; i < device_count; ++i) stripes.emplace_back(flags.k, flags.m, shard_bytes);
  std::vector<double> rates(device_count);
  std::vector<std::function<void()>> bodies;
  const double data_bytes = static_cast<double>(shard_bytes) * flags.k;
  for (std::size_t i = 0; i < device_count; ++i) {
    bodies.emplace_back([&, i] {
      stripes[i].encode(runners[i].context, codec);
      // Counted between ends of calls in the middle, while all the others are at it.
      const double began = seconds_now(BenchClock::wall);
      double first = 0, last = 0;
      std::size_t calls = 0;
      while (calls == 0 || last - began < flags.saturation_seconds * 1.25) {
        stripes[i].encode(runners[i].context, codec);
        const double now = seconds_now(BenchClock::wall);
        if (first == 0) {
          first = now;
        } else if (now - began <= flags.saturation_seconds || calls == 0) {
          ++calls;
          rates[i] = static_cast<double>(calls) * data_bytes / (now - first);
        }
        last = now;
      }
    });
  }
  time_together(bodies, BenchClock::wall);
  return rates;
}

using Json = nlohmann::ordered_json;

Json figures(const std::vector<double> &rates) {
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return {{"median", rates[rates.size() / 2]}, {"min", *least}, {"max", *most}};
}

Json measure(const HybridFlags &flags, const std::vector<Runner> &runners, const Codec &codec, std::size_t size_bytes) {
  const std::size_t shard_bytes = size_bytes / flags.k;
  if (shard_bytes == 0) throw Failure{kExitWrongUsage, fmt::format("--size {} is less than k bytes", size_bytes)};
  const double data_bytes = static_cast<double>(shard_bytes) * flags.k;
  const auto device_count = static_cast<std::size_t>(
      std::count_if(runners.begin(), runners.end(), [](const Runner &each) { return each.kind == "alone"; }));
  const Stripe stripe(flags.k, flags.m, shard_bytes);
  std::vector<Contestant> contestants;
  for (const Runner &each : runners) {
    contestants.push_back({each.name, [&](std::size_t calls) {
                             const double began = seconds_now(BenchClock::wall);
                             for (std::size_t i = 0; i < calls; ++i) stripe.encode(each.context, codec);
                             return seconds_now(BenchClock::wall) - began;
                           }});
  }
  // Speeds are learned, drivers loaded, kernels compiled.
  for (const Contestant &each : contestants) each.run(3);
  const std::vector<Samples> samples = alternate(contestants, flags.repeats, flags.slice_seconds);
  const std::vector<double> saturated = saturate(flags, runners, device_count, codec, shard_bytes);
  double saturation = 0;
  for (const double rate : saturated) saturation += rate;

  Json result = {{"size_bytes", size_bytes},
                 {"shard_bytes", shard_bytes},
                 {"saturation_gb_per_second", saturation / 1e9},
                 {"entries", Json::array()}};
  for (std::size_t i = 0; i < device_count; ++i) result["saturation_by_device"][runners[i].name] = saturated[i] / 1e9;
  double best_alone = 0, best_budget = 0, own = 0;  // seconds
  const auto better = [](double &best, double seconds) { best = best == 0 ? seconds : std::min(best, seconds); };
  for (std::size_t i = 0; i < runners.size(); ++i) {
    const double seconds = samples[i].median();
    if (runners[i].kind == "alone") better(best_alone, seconds);
    if (runners[i].kind == "budget") better(best_budget, seconds);
    if (runners[i].kind == "auto") own = seconds;
    std::vector<double> rates;
    for (const double each : samples[i].seconds) rates.push_back(data_bytes / each / 1e9);
    std::sort(rates.begin(), rates.end());
    Json entry = {{"kind", runners[i].kind}, {"name", runners[i].name}};
    if (runners[i].amount != 0) entry["amount"] = runners[i].amount;
    entry["seconds_per_call"] = seconds;
    entry["gb_per_second"] = figures(rates);
    entry["efficiency"] = data_bytes / saturation / seconds;
    result["entries"].push_back(std::move(entry));
  }
  result["efficiency"] = data_bytes / saturation / own;
  result["over_best_alone"] = own / best_alone;
  if (best_budget != 0) result["over_best_budget"] = own / best_budget;
  return result;
}

void print(const Json &result) {
  fmt::print("{} of data; {:.2f} GB/s all together without an end\n", size(result["size_bytes"].get<std::uint64_t>()),
             result["saturation_gb_per_second"].get<double>());
  fmt::print("  {:<8} {:<16} {:>8} {:>15} {:>11}\n", "KIND", "", "GB/S", "MIN..MAX", "EFFICIENCY");
  for (const Json &entry : result["entries"]) {
    const Json &rates = entry["gb_per_second"];
    fmt::print("  {:<8} {:<16} {:>8.2f} {:>15} {:>11.3f}\n", entry["kind"].get<std::string>(),
               entry["name"].get<std::string>(), rates["median"].get<double>(),
               fmt::format("{:.2f}..{:.2f}", rates["min"].get<double>(), rates["max"].get<double>()),
               entry["efficiency"].get<double>());
  }
  fmt::print("  auto takes {:.3f} of the time of the best device alone", result["over_best_alone"].get<double>());
  if (result.contains("over_best_budget"))
    fmt::print(", {:.3f} of that of the best budget", result["over_best_budget"].get<double>());
  fmt::print("\n\n");
}

int bench_hybrid(const HybridFlags &flags) {
  if (split(flags.devices).size() < 2)
    throw Failure{kExitWrongUsage, fmt::format("--devices {}: two or more, such as cpu+opencl:0:0", flags.devices)};
  BenchCase at;
  at.k = flags.k;
  at.m = flags.m;
  check(tandem_matrix_from_name("isal-cauchy", &at.matrix));
  const Codec codec = make_codec(at);
  const std::vector<Runner> runners = runners_of(flags);
  const Machine machine = this_machine();
  Json object = {{"command", "bench"},
                 {"benchmark", "hybrid"},
                 {"date", utc_now()},
                 {"machine", {{"cpu", machine.cpu}, {"cores", machine.core_count}, {"load", machine.load}}},
                 {"version", tandem_version_string()},
                 {"devices", split(flags.devices)},
                 {"k", flags.k},
                 {"m", flags.m},
                 {"repeats", flags.repeats},
                 {"results", Json::array()}};
  for (const std::size_t size_bytes : flags.sizes) {
    object["results"].push_back(measure(flags, runners, codec, size_bytes));
    if (!flags.output.json && !flags.output.quiet) print(object["results"].back());
  }
  if (flags.output.json) print_json(object);
  if (!flags.output_path.empty()) {
    std::ofstream file(flags.output_path);
    file << object.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    file.close();
    if (!file) throw Failure{kExitInputOutput, fmt::format("cannot write {}", flags.output_path)};
  }
  return kExitDone;
}

}  // namespace

CLI::App *add_bench_hybrid_command(CLI::App &bench, Invocation &invocation) {
  const auto flags = std::make_shared<HybridFlags>();
  CLI::App *command = bench.add_subcommand(
      "hybrid", "Several devices as one: each alone, policies free, budget (every amount of cpu) and auto, encode");
  command->footer(
      "Efficiency: the time that the job would take at the speed of all devices together, each busy all the time (the\n"
      "saturation run), over the time that it took.");
  command->add_option("--devices", flags->devices, "Names of `tandem devices`, with + between")->capture_default_str();
  command->add_option("-k", flags->k, "Data shards")->capture_default_str();
  command->add_option("-m", flags->m, "Parity shards")->capture_default_str();
  command->add_option("--size", flags->sizes, "Data of a job; a list; default: 4MiB,32MiB,256MiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::AsSizeValue(false))
      ->default_str("");
  command->add_option("--threads", flags->thread_count, "CPU threads; default: every core");
  command->add_option("--repeats", flags->repeats, "Samples of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--seconds", flags->slice_seconds, "Time of a sample")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command->add_option("--saturation-seconds", flags->saturation_seconds, "Time of the saturation run")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output_path, "Write the JSON object to this file, too");
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return bench_hybrid(*flags); }; });
  return command;
}

}  // namespace tandem::cli
