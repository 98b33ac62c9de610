#include "hybrid/simulate/worker_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"

namespace tandem::hybrid {
namespace {

constexpr std::size_t kMostNameBytes = 31;  // of tandem_simulated_worker::name, without its zero
constexpr std::size_t kMostShownBytes = 80;
constexpr double kLeastGbps = 1e-6, kMostGbps = 1e6;
constexpr double kMostLatencySeconds = 3600;
constexpr double kMostJitter = 0.9;  // 1 would be tasks that take no time at all

// As it may be shown on a terminal.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kMostShownBytes));
  for (char &c : shown)
    if (c < 0x20 || c > 0x7e) c = '?';
  return fmt::format("\"{}\"{}", shown, text.size() > kMostShownBytes ? " ..." : "");
}

[[noreturn]] void complain(const char *what, std::string_view text, const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} {}: {}", what, quoted(text), why));
}

// Whole decimal numbers only: no sign, no space, nothing behind them.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stopped != text.data() + text.size()) return std::nullopt;
  return value;
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

// What is before the first `separator`; `rest` becomes what is behind it. Nothing behind, no separator: rest is null.
std::string_view cut(std::optional<std::string_view> &rest, char separator) {
  const std::string_view whole = *rest;
  const std::size_t at = whole.find(separator);
  if (at == std::string_view::npos) {
    rest.reset();
    return whole;
  }
  rest = whole.substr(at + 1);
  return whole.substr(0, at);
}

class WorkerParser {
 public:
  explicit WorkerParser(std::string_view text) : text_(text) {}

  WorkerDescription parse() {
    std::optional<std::string_view> rest = text_;
    const std::string_view name = cut(rest, ':');
    if (!valid_name(name)) {
      refuse(fmt::format("{} is no name: 1 to {} letters, digits, '_', '-' or '.'", quoted(name), kMostNameBytes));
    }
    out_.name = name;
    if (!rest) refuse("it has no speed: NAME:COUNTxGBPS or NAME:GROUPSxMEMBERSxGBPS");
    shape(cut(rest, ':'));
    while (rest) setting(cut(rest, ':'));
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string &why) const { complain("worker", text_, why); }

  void shape(std::string_view shape) {
    std::vector<std::string_view> parts;
    for (std::optional<std::string_view> rest = shape; rest && parts.size() <= 3;) parts.push_back(cut(rest, 'x'));
    if (parts.size() != 2 && parts.size() != 3)
      refuse(fmt::format("{} is neither COUNTxGBPS nor GROUPSxMEMBERSxGBPS", quoted(shape)));
    out_.is_groups = parts.size() == 3;
    out_.count = count(out_.is_groups ? "groups" : "workers", parts[0]);
    if (out_.is_groups) out_.members = count("members of a group", parts[1]);
    const std::string_view speed = parts.back();
    const std::optional<double> gbps = number_of<double>(speed);
    if (!gbps) refuse(fmt::format("{} is no speed in GB/s", quoted(speed)));
    if (!(*gbps >= kLeastGbps && *gbps <= kMostGbps))
      refuse(fmt::format("{} GB/s is not from {} to {:.0f}", quoted(speed), kLeastGbps, kMostGbps));
    out_.bytes_per_second = *gbps * 1e9 * out_.members;
  }

  unsigned count(const char *what, std::string_view text) const {
    const std::optional<std::uint64_t> value = number_of<std::uint64_t>(text);
    if (!value || *value == 0 || *value > kMostWorkers)
      refuse(fmt::format("the number of {} is {}, not from 1 to {}", what, quoted(text), kMostWorkers));
    return static_cast<unsigned>(*value);
  }

  void setting(std::string_view setting) {
    std::optional<std::string_view> rest = setting;
    const std::string_view key = cut(rest, '=');
    if (!rest) refuse(fmt::format("{} is not KEY=VALUE", quoted(setting)));
    const std::string_view value = *rest;
    bool &seen = key == "latency" ? latency_seen_ : key == "jitter" ? jitter_seen_ : claim_seen_;
    if (key == "latency") {
      out_.latency_seconds = seconds(value);
    } else if (key == "jitter") {
      const std::optional<double> jitter = number_of<double>(value);
      if (!jitter || !(*jitter <= kMostJitter))
        refuse(fmt::format("jitter is {}, not from 0 to {}", quoted(value), kMostJitter));
      out_.jitter = *jitter;
    } else if (key == "claim") {
      if (!out_.is_groups) refuse("only groups claim: NAME:GROUPSxMEMBERSxGBPS");
      const std::optional<std::uint64_t> claims =
          value == "inf" ? std::optional(UINT64_MAX) : number_of<std::uint64_t>(value);
      if (!claims || *claims == 0) refuse(fmt::format("claim is {}, neither a number from 1 nor inf", quoted(value)));
      out_.claims = *claims;
    } else {
      refuse(fmt::format("{} is unknown; known: latency, jitter, claim", quoted(key)));
    }
    if (seen) refuse(fmt::format("{} is given twice", key));
    seen = true;
  }

  double seconds(std::string_view text) const {
    constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
    for (const auto &[unit, unit_seconds] : kUnits) {
      if (!text.ends_with(unit)) continue;
      const std::optional<double> value = number_of<double>(text.substr(0, text.size() - unit.size()));
      if (!value) break;
      if (!(*value * unit_seconds <= kMostLatencySeconds))
        refuse(fmt::format("latency is {}, more than {:.0f} s", quoted(text), kMostLatencySeconds));
      return *value * unit_seconds;
    }
    refuse(fmt::format("latency is {}, no time such as 0.5s, 2ms, 30us", quoted(text)));
  }

  std::string_view text_;
  WorkerDescription out_;
  bool latency_seen_ = false, jitter_seen_ = false, claim_seen_ = false;
};

}  // namespace

std::vector<WorkerDescription> parse_workers(std::span<const std::string_view> texts) {
  if (texts.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no worker: at least one is needed");
  std::vector<WorkerDescription> all;
  std::uint64_t total = 0;
  for (const std::string_view text : texts) {
    WorkerDescription one = WorkerParser(text).parse();
    total += std::uint64_t{one.count} * one.members;
    if (total > kMostWorkers)
      complain("worker", text, fmt::format("{} workers in all with it, more than {}", total, kMostWorkers));
    const bool mixed = std::any_of(all.begin(), all.end(), [&](const WorkerDescription &known) {
      return known.name == one.name && known.is_groups != one.is_groups;
    });
    if (mixed) {
      complain("worker", text,
               fmt::format("{} is already the name of {}", one.name, one.is_groups ? "single workers" : "groups"));
    }
    all.push_back(std::move(one));
  }
  return all;
}

Policy parse_policy(std::string_view text) {
  if (text == "free") return Policy::free;
  if (text == "budget") return Policy::budget;
  if (text == "auto") return Policy::automatic;
  complain("policy", text, "unknown; known: auto, budget, free");
}

std::vector<std::pair<std::string, std::uint64_t>> parse_resources(std::string_view text,
                                                                   std::span<const WorkerDescription> workers) {
  std::vector<std::pair<std::string, std::uint64_t>> resources;
  if (text.empty()) return resources;
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view one = cut(rest, ',');
    std::optional<std::string_view> value = one;
    const std::string_view name = cut(value, '=');
    if (!value) complain("resource", one, "not NAME=N, such as cpu=5");
    const bool known = std::any_of(workers.begin(), workers.end(),
                                   [&](const WorkerDescription &worker) { return worker.name == name; });
    if (!known) complain("resource", one, "no worker has this name");
    const std::optional<std::uint64_t> amount = number_of<std::uint64_t>(*value);
    if (!amount || *amount == 0) complain("resource", one, "the amount is no number from 1");
    const bool twice =
        std::any_of(resources.begin(), resources.end(), [&](const auto &resource) { return resource.first == name; });
    if (twice) complain("resource", one, "it has an amount already");
    resources.emplace_back(name, *amount);
  }
  return resources;
}

std::vector<SimulatedWorker> to_workers(std::span<const WorkerDescription> descriptions, bool speeds_known) {
  std::vector<SimulatedWorker> workers;
  for (const WorkerDescription &each : descriptions) {
    SimulatedWorker worker;
    worker.name = each.name;
    worker.bytes_per_second = each.bytes_per_second;
    worker.latency_seconds = each.latency_seconds;
    worker.jitter = each.jitter;
    worker.claims = each.claims;
    worker.known_bytes_per_second = speeds_known ? each.bytes_per_second : 0;
    workers.insert(workers.end(), each.count, worker);
  }
  return workers;
}

}  // namespace tandem::hybrid
