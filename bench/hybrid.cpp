// SPDX-License-Identifier: Apache-2.0
// Measures hybrids: several devices as one.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>

#include "base/rounding.hpp"
#include "bench/library.hpp"
#include "bench/machine.hpp"
#include "bench/measure.hpp"
#include "bench/stripes.hpp"
#include "tandem/tools.h"

namespace tandem::bench {
namespace {

constexpr std::size_t kMostBudgets = 64;
constexpr const char *kCpu = "cpu";

// One stripe, and the measured call on it. Decode rebuilds the first m data shards, or all if k is smaller.
class CodedStripe {
 public:
  CodedStripe(const HybridRequest &request, const std::string &operation, const CodecOwner &codec,
              std::size_t shard_bytes)
      : codec_(codec),
        k_(request.k),
        memory_({.shard_count = std::size_t{request.k} + request.m,
                 .shard_bytes = shard_bytes,
                 .placement = MemoryPlacement::page_aligned}) {
    if (operation == "decode") {
      present_.assign(std::size_t{request.k} + request.m, 1);
      std::fill_n(present_.begin(), std::min(request.k, request.m), std::uint8_t{0});
    }
    written_first_ = present_.empty() ? request.k : 0;
    written_count_ = present_.empty() ? request.m : std::min(request.k, request.m);
  }

  void encode(const ContextOwner &context) const {
    check(tandem_encode(context.get(), codec_.get(), reinterpret_cast<const void *const *>(shards()), shards() + k_,
                        memory_.all().shard_bytes()));
  }
  void call(const ContextOwner &context) const {
    if (present_.empty()) return encode(context);
    check(tandem_decode(context.get(), codec_.get(), shards(), present_.data(), memory_.all().shard_bytes()));
  }

  std::vector<std::uint8_t> written() const {
    const std::size_t length = memory_.all().shard_bytes();
    std::vector<std::uint8_t> bytes(written_count_ * length);
    for (std::size_t i = 0; i < written_count_; ++i)
      std::memcpy(&bytes[i * length], shards()[written_first_ + i], length);
    return bytes;
  }
  void forget_written() const {
    for (std::size_t i = 0; i < written_count_; ++i)
      std::memset(shards()[written_first_ + i], 0xee, memory_.all().shard_bytes());
  }

 private:
  void *const *shards() const { return reinterpret_cast<void *const *>(memory_.all().shards(0)); }

  const CodecOwner &codec_;
  unsigned k_;
  Stripes memory_;
  std::vector<std::uint8_t> present_;  // empty: encode
  std::size_t written_first_ = 0, written_count_ = 0;
};

// One contestant: a device alone, or the hybrid with a policy. `amount` is the budget's amount of "cpu". Contestants of
// which the first call is measured get a new context for each call.
struct Runner {
  std::string kind, name, backend, policy;
  std::uint64_t amount = 0;
  ContextOwner context;
};

// The tuning file is not used: all runs have the built-in values.
ContextOwner context_of(const HybridRequest &request, const Runner &runner) {
  tandem_context_options options = {};
  options.struct_bytes = sizeof options;
  options.backend = runner.backend.c_str();
  options.tuning_file = "";
  if (!runner.policy.empty()) options.policy = runner.policy.c_str();
  if (runner.kind != "alone" || runner.backend == kCpu) {
    options.thread_count = request.thread_count;
    if (!request.kernel.empty()) options.kernel = request.kernel.c_str();
  }
  if (runner.kind != "free" && !request.resources.empty()) options.resources = request.resources.c_str();
  ContextOwner context = make_context(options);
  if (runner.amount != 0) check(tandem_context_set_resource(context.get(), kCpu, runner.amount));
  return context;
}

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return parts;
    at = end + 1;
  }
}

// How many lanes of the CPU may work: its threads, or fewer if the resources say so. The context has checked them.
std::uint64_t cpu_lanes(const HybridRequest &request, const ContextOwner &cpu) {
  std::uint64_t lanes = query(cpu).thread_count;
  for (const std::string &each : split(request.resources, ','))
    if (each.starts_with("cpu=")) lanes = std::min<std::uint64_t>(lanes, std::stoull(each.substr(4)));
  return lanes;
}

// Each device alone comes first.
std::vector<Runner> runners_of(const HybridRequest &request) {
  const std::string hybrid = "hybrid:" + request.devices;
  std::vector<Runner> runners;
  std::uint64_t lanes = 0;
  const auto add = [&](Runner runner) {
    if (runner.kind != "auto-first") runner.context = context_of(request, runner);
    runners.push_back(std::move(runner));
  };
  for (const std::string &name : split(request.devices, '+')) {
    add({"alone", name, name, "", 0, nullptr});
    if (name == kCpu) lanes = cpu_lanes(request, runners.back().context);
  }
  add({"free", "free", hybrid, "budget", 0, nullptr});  // no amount is set
  for (std::uint64_t amount = 1; amount <= std::min<std::uint64_t>(lanes, kMostBudgets); ++amount)
    add({"budget", fmt::format("cpu={}", amount), hybrid, "budget", amount, nullptr});
  add({"auto-first", "auto, first call", hybrid, "auto", 0, nullptr});
  add({"auto", "auto", hybrid, "auto", 0, nullptr});
  return runners;
}

// ---- time

// The times of one call.
struct Cost {
  double seconds = 0, core_seconds = 0;
};

// CPU time of all threads of this process, the threads of drivers included.
double core_seconds_now() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval &time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <class Body>
Cost cost_of(Body body) {
  const double cores = core_seconds_now(), began = seconds_now(BenchClock::wall);
  body();
  const double seconds = seconds_now(BenchClock::wall) - began;
  return {seconds, core_seconds_now() - cores};
}

Cost measure(const HybridRequest &request, const Runner &runner, const CodedStripe &stripe) {
  if (runner.kind == "auto-first") {
    const ContextOwner fresh = context_of(request, runner);
    return cost_of([&] { stripe.call(fresh); });
  }
  stripe.call(runner.context);  // the caches hold what the previous runner used
  std::size_t calls = 0;
  Cost cost = cost_of([&] {
    const double began = seconds_now(BenchClock::wall);
    do {
      stripe.call(runner.context);
      ++calls;
    } while (seconds_now(BenchClock::wall) - began < request.slice_seconds);
  });
  cost.seconds /= static_cast<double>(calls);
  cost.core_seconds /= static_cast<double>(calls);
  return cost;
}

// Each repeat runs every contestant once. The order is random, because each contestant is affected by the one before
// it. Returns one list for each of them.
std::vector<std::vector<Cost>> measure_in_turns(const HybridRequest &request, const std::vector<Runner> &runners,
                                                const CodedStripe &stripe) {
  std::vector<std::vector<Cost>> costs(runners.size());
  std::vector<std::size_t> order(runners.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(1);
  for (unsigned repeat = 0; repeat < request.repeats; ++repeat) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) costs[i].push_back(measure(request, runners[i], stripe));
  }
  return costs;
}

// Warms up: loads drivers, compiles kernels, learns speeds. All must write the same bytes, at first and at the end.
void warm_up(const HybridRequest &request, const std::vector<Runner> &runners, const CodedStripe &stripe,
             std::uint64_t data_bytes) {
  constexpr std::uint64_t kCalls = 4;
  std::optional<std::vector<std::uint8_t>> expected;
  for (const Runner &each : runners) {
    const bool is_first = each.kind == "auto-first";
    const std::uint64_t calls =
        is_first ? kCalls : std::max(kCalls, base::divide_up(request.warm_up_bytes, data_bytes));
    for (std::uint64_t i = 0; i < calls; ++i) {
      const bool is_checked = i < kCalls || i + 1 == calls;
      if (is_checked) stripe.forget_written();
      if (is_first) {
        stripe.call(context_of(request, each));
      } else {
        stripe.call(each.context);
      }
      if (!is_checked) continue;
      if (!expected) expected = stripe.written();
      if (stripe.written() != *expected)
        throw std::runtime_error(
            fmt::format("{} ({}) and {} wrote different bytes", each.name, each.kind, runners.front().name));
    }
  }
}

// Runs all devices at once, each again and again on its own stripe: the rate of all together if none waits for the end
// of a job. Returns each device's bytes of data per second, counted between the ends of its calls in the given time
// (one call, if it takes longer). A device continues until all are counted, so that each runs beside all others.
std::vector<double> saturate(const HybridRequest &request, const std::vector<Runner> &runners,
                             const std::string &operation, const CodecOwner &codec, std::size_t shard_bytes) {
  std::vector<const ContextOwner *> devices;
  for (const Runner &each : runners)
    if (each.kind == "alone") devices.push_back(&each.context);
  std::vector<CodedStripe> stripes;
  for (const ContextOwner *each : devices) {
    stripes.emplace_back(request, operation, codec, shard_bytes);
    stripes.back().encode(*each);
    stripes.back().call(*each);
  }
  std::vector<double> rates(devices.size());
  std::atomic<std::size_t> counted{0};
  std::vector<std::function<void()>> bodies;
  const double data_bytes = static_cast<double>(shard_bytes) * request.k;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    bodies.emplace_back([&, i] {
      const double began = seconds_now(BenchClock::wall);
      stripes[i].call(*devices[i]);
      const double first = seconds_now(BenchClock::wall);
      std::size_t calls = 0;
      bool is_counted = false;
      while (counted.load() < devices.size()) {
        stripes[i].call(*devices[i]);
        const double now = seconds_now(BenchClock::wall);
        if (is_counted) continue;
        ++calls;
        rates[i] = static_cast<double>(calls) * data_bytes / (now - first);
        is_counted = now - began >= request.saturation_seconds;
        if (is_counted) counted.fetch_add(1);
      }
    });
  }
  time_together(bodies, BenchClock::wall);
  return rates;
}

// ---- results

using Json = nlohmann::ordered_json;

double median_of(std::vector<double> values) { return Samples{"", std::move(values)}.median(); }

Json figures(const std::vector<double> &values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"median", median_of(values)}, {"min", *least}, {"max", *most}};
}

Json measure(const HybridRequest &request, const std::vector<Runner> &runners, const CodecOwner &codec,
             const std::string &operation, std::size_t size_bytes) {
  const std::size_t shard_bytes = size_bytes / request.k;
  if (shard_bytes == 0) refuse(fmt::format("--size {} is less than k bytes", size_bytes));
  const double data_bytes = static_cast<double>(shard_bytes) * request.k;
  const CodedStripe stripe(request, operation, codec, shard_bytes);
  stripe.encode(runners.front().context);
  warm_up(request, runners, stripe, std::uint64_t{shard_bytes} * request.k);
  const std::vector<std::vector<Cost>> costs = measure_in_turns(request, runners, stripe);
  const std::vector<double> saturated = saturate(request, runners, operation, codec, shard_bytes);
  double saturation = 0;
  for (const double rate : saturated) saturation += rate;

  Json result = {{"operation", operation},
                 {"size_bytes", size_bytes},
                 {"shard_bytes", shard_bytes},
                 {"saturation_gb_per_second", saturation / 1e9},
                 {"entries", Json::array()}};
  for (std::size_t i = 0; i < saturated.size(); ++i)
    result["saturation_by_device"][runners[i].name] = saturated[i] / 1e9;
  std::vector<double> medians;
  for (const std::vector<Cost> &each : costs) {
    std::vector<double> seconds;
    for (const Cost &cost : each) seconds.push_back(cost.seconds);
    medians.push_back(median_of(std::move(seconds)));
  }
  const auto best_of = [&](const char *kind) {
    std::size_t best = SIZE_MAX;
    for (std::size_t i = 0; i < runners.size(); ++i)
      if (runners[i].kind == kind && (best == SIZE_MAX || medians[i] < medians[best])) best = i;
    return best;
  };
  const std::size_t alone = best_of("alone"), budget = best_of("budget");
  result["best_alone"] = runners[alone].name;
  if (budget != SIZE_MAX) result["best_budget"] = runners[budget].amount;
  for (std::size_t i = 0; i < runners.size(); ++i) {
    std::vector<double> rates, core_seconds;
    for (const Cost &cost : costs[i]) {
      rates.push_back(data_bytes / cost.seconds / 1e9);
      core_seconds.push_back(cost.core_seconds / data_bytes * 1e9);
    }
    Json entry = {{"kind", runners[i].kind}, {"name", runners[i].name}};
    if (runners[i].amount != 0) entry["amount"] = runners[i].amount;
    entry["seconds_per_call"] = medians[i];
    entry["gb_per_second"] = figures(rates);
    entry["core_seconds_per_gb"] = figures(core_seconds);
    entry["efficiency"] = data_bytes / saturation / medians[i];
    entry["over_best_alone"] = medians[i] / medians[alone];
    if (budget != SIZE_MAX) entry["over_best_budget"] = medians[i] / medians[budget];
    result["entries"].push_back(std::move(entry));
  }
  return result;
}

// "268.44 MB"
std::string size_text(std::uint64_t bytes) {
  constexpr const char *kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, kUnits[unit]);
}

void print(const Json &result) {
  fmt::print("{} {} of data; {:.2f} GB/s with all devices busy\n", result["operation"].get<std::string>(),
             size_text(result["size_bytes"].get<std::uint64_t>()), result["saturation_gb_per_second"].get<double>());
  fmt::print("  {:<11} {:<16} {:>8} {:>15} {:>10} {:>11} {:>11}\n", "KIND", "", "GB/S", "MIN..MAX", "CORE-S/GB",
             "EFFICIENCY", "TIME/ALONE");
  for (const Json &entry : result["entries"]) {
    const Json &rates = entry["gb_per_second"];
    fmt::print("  {:<11} {:<16} {:>8.2f} {:>15} {:>10.4f} {:>11.3f} {:>11.3f}\n", entry["kind"].get<std::string>(),
               entry["name"].get<std::string>(), rates["median"].get<double>(),
               fmt::format("{:.2f}..{:.2f}", rates["min"].get<double>(), rates["max"].get<double>()),
               entry["core_seconds_per_gb"]["median"].get<double>(), entry["efficiency"].get<double>(),
               entry["over_best_alone"].get<double>());
  }
  fmt::print("  best alone: {}", result["best_alone"].get<std::string>());
  const Json &own = result["entries"].back();
  if (own.contains("over_best_budget"))
    fmt::print("; best budget: cpu={}, auto takes {:.3f} of its time", result["best_budget"].get<std::uint64_t>(),
               own["over_best_budget"].get<double>());
  fmt::print("\n\n");
}

}  // namespace

Json measure_hybrid(const HybridRequest &request, bool show) {
  std::int32_t matrix = 0;
  check(tandem_matrix_from_name("isal-cauchy", &matrix));
  const CodecOwner codec = make_codec(request.k, request.m, matrix);
  const std::vector<Runner> runners = runners_of(request);
  const MachineFacts machine = this_machine();
  Json object = {{"command", "hybrid"},
                 {"benchmark", "hybrid"},
                 {"date", utc_now()},
                 {"machine", {{"cpu", machine.cpu}, {"cores", machine.core_count}, {"load", machine.load}}},
                 {"version", tandem_version_string()},
                 {"devices", split(request.devices, '+')},
                 {"k", request.k},
                 {"m", request.m},
                 {"resources", request.resources},
                 {"warm_up_bytes", request.warm_up_bytes},
                 {"repeats", request.repeats},
                 {"results", Json::array()}};
  for (const Runner &each : runners)
    if (each.kind == "alone" && each.name == kCpu) {
      const tandem_context_info info = query(each.context);
      object["kernel"] = info.kernel;
      object["threads"] = info.thread_count;
    }
  for (const std::string &operation : request.operations) {
    for (const std::size_t size_bytes : request.sizes) {
      object["results"].push_back(measure(request, runners, codec, operation, size_bytes));
      if (show) print(object["results"].back());
    }
  }
  return object;
}

}  // namespace tandem::bench
