// Several devices as one.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/library.hpp"
#include "bench/machine.hpp"
#include "bench/measure.hpp"
#include "bench/stripes.hpp"

namespace tandem::bench {
namespace {

constexpr std::size_t kMostBudgets = 64;

class EncodedStripe {
 public:
  EncodedStripe(unsigned k, unsigned m, std::size_t shard_bytes)
      : k_(k),
        memory_({.shard_count = std::size_t{k} + m,
                 .shard_bytes = shard_bytes,
                 .placement = MemoryPlacement::page_aligned}) {}

  void encode(const ContextOwner &context, const CodecOwner &codec) const {
    unsigned char *const *shards = memory_.all().shards(0);
    check(tandem_encode(context.get(), codec.get(), reinterpret_cast<const void *const *>(shards),
                        reinterpret_cast<void *const *>(shards + k_), memory_.all().shard_bytes()));
  }

 private:
  unsigned k_;
  Stripes memory_;
};

// Somebody who encodes: one device, or the hybrid with a policy. `amount` is of "cpu", in a budget.
struct Runner {
  std::string kind, name;
  std::uint64_t amount = 0;
  ContextOwner context;
};

Runner runner(const HybridRequest &request, std::string kind, const std::string &backend, const std::string &policy,
              std::uint64_t amount) {
  tandem_context_options context = {};
  context.struct_bytes = sizeof context;
  context.backend = backend.c_str();
  if (!policy.empty()) context.policy = policy.c_str();
  if (kind != "alone" || backend == "cpu") context.thread_count = request.thread_count;
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
std::vector<Runner> runners_of(const HybridRequest &request) {
  const std::vector<std::string> names = split(request.devices);
  const std::string hybrid = "hybrid:" + request.devices;
  std::vector<Runner> runners;
  std::uint64_t lanes = 0;
  for (const std::string &name : names) {
    runners.push_back(runner(request, "alone", name, "", 0));
    if (name == "cpu") lanes = query(runners.back().context).thread_count;
  }
  runners.push_back(runner(request, "free", hybrid, "free", 0));
  for (std::uint64_t amount = 1; amount <= std::min<std::uint64_t>(lanes, kMostBudgets); ++amount)
    runners.push_back(runner(request, "budget", hybrid, "budget", amount));
  runners.push_back(runner(request, "auto", hybrid, "auto", 0));
  return runners;
}

// All devices at once, each on a stripe of its own and over and over: what they do together when nobody waits for an
// end. Bytes of data per second of each.
std::vector<double> saturate(const HybridRequest &request, const std::vector<Runner> &runners, std::size_t device_count,
                             const CodecOwner &codec, std::size_t shard_bytes) {
  std::vector<EncodedStripe> stripes;
  for (std::size_t i = 0; i < device_count; ++i) stripes.emplace_back(request.k, request.m, shard_bytes);
  std::vector<double> rates(device_count);
  std::vector<std::function<void()>> bodies;
  const double data_bytes = static_cast<double>(shard_bytes) * request.k;
  for (std::size_t i = 0; i < device_count; ++i) {
    bodies.emplace_back([&, i] {
      stripes[i].encode(runners[i].context, codec);
      // Counted between ends of calls in the middle, while all the others are at it.
      const double began = seconds_now(BenchClock::wall);
      double first = 0, last = 0;
      std::size_t calls = 0;
      while (calls == 0 || last - began < request.saturation_seconds * 1.25) {
        stripes[i].encode(runners[i].context, codec);
        const double now = seconds_now(BenchClock::wall);
        if (first == 0) {
          first = now;
        } else if (now - began <= request.saturation_seconds || calls == 0) {
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

Json measure(const HybridRequest &request, const std::vector<Runner> &runners, const CodecOwner &codec,
             std::size_t size_bytes) {
  const std::size_t shard_bytes = size_bytes / request.k;
  if (shard_bytes == 0) refuse(fmt::format("--size {} is less than k bytes", size_bytes));
  const double data_bytes = static_cast<double>(shard_bytes) * request.k;
  const auto device_count = static_cast<std::size_t>(
      std::count_if(runners.begin(), runners.end(), [](const Runner &each) { return each.kind == "alone"; }));
  const EncodedStripe stripe(request.k, request.m, shard_bytes);
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
  const std::vector<Samples> samples = alternate(contestants, request.repeats, request.slice_seconds);
  const std::vector<double> saturated = saturate(request, runners, device_count, codec, shard_bytes);
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

// "268.44 MB"
std::string size_text(std::uint64_t bytes) {
  constexpr const char *kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, kUnits[unit]);
}

void print(const Json &result) {
  fmt::print("{} of data; {:.2f} GB/s all together without an end\n",
             size_text(result["size_bytes"].get<std::uint64_t>()), result["saturation_gb_per_second"].get<double>());
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

}  // namespace

Json measure_hybrid(const HybridRequest &request, bool show) {
  if (split(request.devices).size() < 2)
    refuse(fmt::format("--devices {}: two or more, such as cpu+opencl:0:0", request.devices));
  std::int32_t matrix = 0;
  check(tandem_matrix_from_name("isal-cauchy", &matrix));
  const CodecOwner codec = make_codec(request.k, request.m, matrix);
  const std::vector<Runner> runners = runners_of(request);
  const MachineFacts machine = this_machine();
  Json object = {{"command", "bench"},
                 {"benchmark", "hybrid"},
                 {"date", utc_now()},
                 {"machine", {{"cpu", machine.cpu}, {"cores", machine.core_count}, {"load", machine.load}}},
                 {"version", tandem_version_string()},
                 {"devices", split(request.devices)},
                 {"k", request.k},
                 {"m", request.m},
                 {"repeats", request.repeats},
                 {"results", Json::array()}};
  for (const std::size_t size_bytes : request.sizes) {
    object["results"].push_back(measure(request, runners, codec, size_bytes));
    if (show) print(object["results"].back());
  }
  return object;
}

}  // namespace tandem::bench
