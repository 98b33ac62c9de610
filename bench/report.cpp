// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/roof.hpp"
#include "tandem/tools.h"

namespace tandem::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double gigabytes(std::size_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

std::string binary_size(std::size_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} bytes", bytes);
}

std::string matrix_text(const BenchCase &at) {
  const char *name = tandem_matrix_name(at.matrix);
  return name != nullptr ? name : fmt::format("matrix {}", at.matrix);
}

std::string packets_text(const BenchCase &at) {
  if (at.packets.packet_bytes == 0) return {};
  return fmt::format(", {} packets of {} bytes", at.packets.word_bits, at.packets.packet_bytes);
}

std::string clock_name(BenchClock clock) { return clock == BenchClock::cpu ? "cpu" : "wall"; }

std::string loss_text(Loss loss) { return loss == Loss::first ? "first" : "random"; }

std::string heading_of(const BenchResult &result) {
  const BenchCase &at = result.at;
  std::string text = fmt::format("{}, {}{}", operation_name(at.operation), matrix_text(at), packets_text(at));
  if (at.operation == BenchOperation::decode)
    text += at.loss == Loss::first ? ", the first m data shards lost" : ", m random shards lost";
  if (at.operation == BenchOperation::decode_setup) return text + ", m random data shards lost";
  const std::string amount =
      at.size_bytes != 0 ? binary_size(at.size_bytes) + " a stripe" : binary_size(at.shard_bytes) + " a shard";
  text += fmt::format(", {} {}", amount,
                      at.stripe_count == 1 ? "in cache" : fmt::format("out of cache ({} stripes)", at.stripe_count));
  text += fmt::format(", {}", placement_name(at.placement));
  if (at.odd) text += at.placement == MemoryPlacement::page_aligned ? ", odd lengths" : ", odd lengths and addresses";
  return text;
}

std::string code_text(const BenchCase &at) { return fmt::format("{}+{}", at.k, at.m); }

std::string peer_times(const BenchResult &result) {
  return result.peer ? fmt::format("{:.2f}", result.over_peer()) : "-";
}

std::string range_text(const BenchResult &result) {
  return fmt::format("{:.1f}..{:.1f}", gigabytes(result.data_bytes, result.tandem.max()),
                     gigabytes(result.data_bytes, result.tandem.min()));
}

std::string rate_text(const BenchResult &result, const Samples *samples) {
  return samples == nullptr ? "-" : fmt::format("{:.1f}", gigabytes(result.data_bytes, samples->median()));
}

constexpr const char *kRateLine = "{:>8} {:>9} {:>8} {:>13} {:>6} {:>8} {:>7} {:>7} {:>10} {:>11}  {}\n";
constexpr const char *kTimeLine = "{:>8} {:>10} {:>16} {:>10} {:>7}\n";

// "pthread, 4 threads, pinned": what differs from the defaults, after the executor and its threads.
std::string context_text(const BenchResult &result) {
  std::string text = fmt::format("{}, {}", result.executor, plural(result.thread_count, "thread"));
  if (result.is_pinned) text += ", pinned";
  return text;
}

void print_energy(const BenchResult &result) {
  if (!result.energy_is_missing.empty()) fmt::print("         energy NOT MEASURED: {}\n", result.energy_is_missing);
  for (const EnergyOfDomain &domain : result.energy) {
    if (!domain.moves) {
      fmt::print("         energy {} NOT MEASURED: the counter does not move\n", domain.name);
      continue;
    }
    const auto per_gigabyte = [&](double joules) { return joules / gigabytes(result.data_bytes, 1); };
    const Samples joules = {domain.name, domain.joules};
    fmt::print(
        "         energy {}: {:.3f} J/GB ({:.3f}..{:.3f}) above the {:.1f} W of a pause; with time r = {:.3f} "
        "({:.3f} to {:.3f})\n",
        domain.name, per_gigabyte(joules.median()), per_gigabyte(joules.min()), per_gigabyte(joules.max()),
        domain.idle_watts, domain.with_time.r, domain.with_time.low, domain.with_time.high);
  }
}

void print_rate(const BenchResult &result) {
  const Samples *roof = result.roof();
  std::string note = fmt::format("{:<20} {}", result.technique, roof == nullptr ? "-" : roof->name);
  if (above_roof(result)) note += "  ABOVE THE ROOF: its loops are too slow";
  if (result.scaling)
    note +=
        fmt::format("  x{:.2f} over 1 thread (registers x{:.2f})", result.scaling->tandem, result.scaling->registers);
  fmt::print(kRateLine, code_text(result.at), result.at.shard_bytes, rate_text(result, &result.tandem),
             range_text(result), rate_text(result, result.peer ? &*result.peer : nullptr), peer_times(result),
             rate_text(result, roof), fmt::format("{:.0f}%", result.of_roof() * 100),
             fmt::format("{:.0f}", result.tandem.median() * 1e9), result.read_bytes + result.written_bytes, note);
}

void print_time(const BenchResult &result) {
  const auto microseconds = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e6); };
  fmt::print(kTimeLine, code_text(result.at), microseconds(result.tandem.median()),
             microseconds(result.tandem.min()) + ".." + microseconds(result.tandem.max()),
             result.peer ? microseconds(result.peer->median()) : "-", peer_times(result));
}

Json samples_json(const BenchResult &result, const Samples &samples) {
  Json json = {{"seconds_per_call", {{"median", samples.median()}, {"min", samples.min()}, {"max", samples.max()}}}};
  if (result.data_bytes != 0)
    json["gb_per_second"] = {{"median", gigabytes(result.data_bytes, samples.median())},
                             {"min", gigabytes(result.data_bytes, samples.max())},
                             {"max", gigabytes(result.data_bytes, samples.min())}};
  return json;
}

Json result_json(const BenchResult &result) {
  const BenchCase &at = result.at;
  Json json = {{"operation", operation_name(at.operation)}, {"k", at.k}, {"m", at.m}, {"matrix", matrix_text(at)}};
  json["executor"] = result.executor;
  json["threads"] = result.thread_count;
  json["pin"] = result.is_pinned;
  if (at.packets.packet_bytes != 0) {
    json["word_bits"] = at.packets.word_bits;
    json["packet_bytes"] = at.packets.packet_bytes;
  }
  if (result.data_bytes != 0) {
    json["size_bytes"] = at.size_bytes != 0 ? at.size_bytes : at.shard_bytes * (at.k + at.m);
    json["shard_bytes"] = at.shard_bytes;
    json["stripe_count"] = at.stripe_count;
    json["in_cache"] = at.stripe_count == 1;
    json["placement"] = placement_name(at.placement);
    json["odd"] = at.odd;
    if (at.operation == BenchOperation::decode) json["lost"] = loss_text(at.loss);
    json["data_bytes"] = result.data_bytes;
    json["read_bytes"] = result.read_bytes;
    json["written_bytes"] = result.written_bytes;
  }
  json["tandem"] = samples_json(result, result.tandem);
  if (!result.technique.empty()) json["technique"] = result.technique;
  if (result.peer) {
    json["peer"] = samples_json(result, *result.peer);
    json["over_peer"] = result.over_peer();
  }
  if (const Samples *roof = result.roof(); roof != nullptr) {
    json["roof"] = samples_json(result, *roof);
    json["roof"]["loop"] = roof->name;
    json["of_roof"] = result.of_roof();
    json["above_roof"] = above_roof(result);
  }
  if (!result.energy_is_missing.empty()) json["energy"]["not_measured"] = result.energy_is_missing;
  for (const EnergyOfDomain &domain : result.energy) {
    Json &list = json["energy"]["domains"];
    if (!domain.moves) {
      list.push_back({{"domain", domain.name}, {"not_measured", "the counter does not move"}});
      continue;
    }
    const Samples joules = {domain.name, domain.joules};
    list.push_back({{"domain", domain.name},
                    {"joules_per_call", {{"median", joules.median()}, {"min", joules.min()}, {"max", joules.max()}}},
                    {"joules_per_gb", joules.median() / gigabytes(result.data_bytes, 1)},
                    {"idle_watts", domain.idle_watts},
                    {"samples", domain.joules.size()},
                    {"correlation_with_time",
                     {{"r", domain.with_time.r}, {"low", domain.with_time.low}, {"high", domain.with_time.high}}}});
  }
  if (result.scaling) json["scaling"] = {{"tandem", result.scaling->tandem}, {"registers", result.scaling->registers}};
  return json;
}

}  // namespace

bool above_roof(const BenchResult &result) { return result.of_roof() > 1.02; }

void BenchTable::begin(const MachineFacts &machine, const BenchSettings &settings, const tandem_context_info &context) {
  fmt::print("machine  {}, {}, L2 {}, {}, huge pages: {}, load {:.2f}\n", machine.cpu,
             plural(machine.core_count, "core"), binary_size(machine.l2_bytes), machine.system, machine.huge_pages,
             machine.load);
  fmt::print("tandem   {} {}, kernel {}, executor {}, {}\n", tandem_version_string(), context.backend, context.kernel,
             context.executor, plural(context.thread_count, "thread"));
  if (settings.peer) {
    fmt::print("peer     {} of {}{}\n", settings.peer->function(), settings.peer->path(),
               settings.peer->version().empty() ? "" : ", version " + settings.peer->version());
  } else {
    fmt::print("peer     none\n");
  }
  const RoofLoops roofs = roof_loops();
  fmt::print("roof     the best of {} loops, {} vectors\n", roofs.count, roofs.vectors);
  fmt::print("GB/s of data, by the {} clock; medians of {} repeats in alternation\n", clock_name(settings.clock),
             settings.repeats);
}

void BenchTable::add(const BenchResult &result) {
  const bool is_rate = result.data_bytes != 0;
  if (const std::string heading = heading_of(result); heading != heading_) {
    heading_ = heading;
    fmt::print("\n{}\n", heading);
    if (is_rate) {
      fmt::print(kRateLine, "code", "shard", "tandem", "min..max", "peer", "x peer", "roof", "of it", "ns a call",
                 "bytes moved", "technique            best roof loop");
    } else {
      fmt::print(kTimeLine, "code", "tandem us", "min..max", "peer us", "x peer");
    }
  }
  is_rate ? print_rate(result) : print_time(result);
  if (names_contexts_) fmt::print("         {}\n", context_text(result));
  print_energy(result);
  std::fflush(stdout);
}

nlohmann::ordered_json bench_json(const MachineFacts &machine, const BenchSettings &settings,
                                  const tandem_context_info &context, const std::vector<BenchResult> &results) {
  Json json = {{"command", "run"}, {"format", 1}, {"date", utc_now()}};
  json["machine"] = {{"cpu", machine.cpu},
                     {"cores", machine.core_count},
                     {"l1d_bytes", machine.l1d_bytes},
                     {"l2_bytes", machine.l2_bytes},
                     {"l3_bytes", machine.l3_bytes},
                     {"system", machine.system},
                     {"huge_pages", machine.huge_pages},
                     {"load", machine.load}};
  json["tandem"] = {{"version", tandem_version_string()},
                    {"backend", context.backend},
                    {"kernel", context.kernel},
                    {"executor", context.executor},
                    {"threads", context.thread_count}};
  json["peer"] = nullptr;
  if (settings.peer)
    json["peer"] = {{"path", settings.peer->path()},
                    {"version", settings.peer->version()},
                    {"function", settings.peer->function()}};
  json["roof"] = {{"vectors", roof_loops().vectors}, {"loops", roof_loops().count}};
  json["settings"] = {{"clock", clock_name(settings.clock)},
                      {"repeats", settings.repeats},
                      {"seconds", settings.seconds},
                      {"seed", settings.seed}};
  json["results"] = Json::array();
  for (const BenchResult &result : results) json["results"].push_back(result_json(result));
  return json;
}

}  // namespace tandem::bench
