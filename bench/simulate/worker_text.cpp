// SPDX-License-Identifier: Apache-2.0
#include "bench/simulate/worker_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace tandem::bench {
namespace {

constexpr std::size_t kMostNameBytes = 31;
constexpr std::size_t kMostShownBytes = 80;
constexpr double kLeastGbps = 1e-6, kMostGbps = 1e6;
constexpr double kMostLatencySeconds = 3600;
constexpr double kMostMomentSeconds = 1e9;
constexpr double kMostSlowFactor = 1e6;
constexpr unsigned kMostInner = 4096;
constexpr double kMostJitter = 0.9;  // with 1 a task could take no time at all

// In a form that is safe on a terminal.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kMostShownBytes));
  for (char &c : shown)
    if (c < 0x20 || c > 0x7e) c = '?';
  return base::text("\"", shown, "\"", text.size() > kMostShownBytes ? " ..." : "");
}

[[noreturn]] void complain(const char *what, std::string_view text, const std::string &why) {
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(what, " ", quoted(text), ": ", why));
}

// Only whole decimal numbers: no sign, no space, nothing after them.
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

// The text before the first `separator`; `rest` becomes the text after it. Without a separator, rest is null.
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

// Bytes per second of a text in GB/s. `what` and `whole` are for the message.
double speed(const char *what, std::string_view whole, std::string_view text) {
  const std::optional<double> gbps = number_of<double>(text);
  if (!gbps) complain(what, whole, base::text(quoted(text), " is no speed in GB/s"));
  if (!(*gbps >= kLeastGbps && *gbps <= kMostGbps)) {
    complain(what, whole,
             base::text(quoted(text), " GB/s is not from ", kLeastGbps, " to ", base::fixed(kMostGbps, 0)));
  }
  return *gbps * 1e9;
}

class WorkerParser {
 public:
  explicit WorkerParser(std::string_view text) : text_(text) {}

  WorkerDescription parse() {
    std::optional<std::string_view> rest = text_;
    const std::string_view name = cut(rest, ':');
    if (!valid_name(name)) {
      refuse(base::text(quoted(name), " is no name: 1 to ", kMostNameBytes, " letters, digits, '_', '-' or '.'"));
    }
    out_.worker.name = name;
    if (!rest) refuse("it has no speed: NAME:COUNTxGBPS or NAME:GROUPSxMEMBERSxGBPS");
    shape(cut(rest, ':'));
    while (rest) setting(cut(rest, ':'));
    combinations();
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string &why) const { complain("worker", text_, why); }

  void shape(std::string_view shape) {
    std::vector<std::string_view> parts;
    for (std::optional<std::string_view> rest = shape; rest && parts.size() <= 3;) parts.push_back(cut(rest, 'x'));
    if (parts.size() != 2 && parts.size() != 3)
      refuse(base::text(quoted(shape), " is neither COUNTxGBPS nor GROUPSxMEMBERSxGBPS"));
    out_.is_groups = parts.size() == 3;
    out_.count = count(out_.is_groups ? "groups" : "workers", parts[0]);
    if (out_.is_groups) out_.worker.member_count = count("members of a group", parts[1]);
    out_.worker.bytes_per_second = speed("worker", text_, parts.back()) * out_.worker.member_count;
  }

  unsigned count(const char *what, std::string_view text, unsigned most = kMostWorkers) const {
    const std::optional<std::uint64_t> value = number_of<std::uint64_t>(text);
    if (!value || *value == 0 || *value > most)
      refuse(base::text("the number of ", what, " is ", quoted(text), ", not from 1 to ", most));
    return static_cast<unsigned>(*value);
  }

  void setting(std::string_view setting) {
    std::optional<std::string_view> rest = setting;
    const std::string_view key = cut(rest, '=');
    if (!rest) refuse(base::text(quoted(setting), " is not KEY=VALUE"));
    const std::string_view value = *rest;
    if (key == "latency") {
      out_.worker.latency_seconds = seconds(key, value, kMostLatencySeconds);
    } else if (key == "jitter") {
      const std::optional<double> jitter = number_of<double>(value);
      if (!jitter || !(*jitter <= kMostJitter))
        refuse(base::text("jitter is ", quoted(value), ", not from 0 to ", kMostJitter));
      out_.worker.jitter = *jitter;
    } else if (key == "claim") {
      if (!out_.is_groups) refuse("only groups claim: NAME:GROUPSxMEMBERSxGBPS");
      const std::optional<std::uint64_t> claims =
          value == "inf" ? std::optional(UINT64_MAX) : number_of<std::uint64_t>(value);
      if (!claims || *claims == 0) refuse(base::text("claim is ", quoted(value), ", neither a number from 1 nor inf"));
      out_.worker.claims = *claims;
    } else if (key == "inner") {
      if (!out_.is_groups) refuse("only groups have inner tasks: NAME:GROUPSxMEMBERSxGBPS");
      out_.worker.inner_count = count("inner tasks", value, kMostInner);
    } else if (key == "spawn") {
      out_.worker.spawn_seconds = seconds(key, value, kMostLatencySeconds);
    } else if (key == "slow") {
      slow(value);
    } else if (key == "fails") {
      out_.worker.fails_at_seconds = seconds(key, value, kMostMomentSeconds);
    } else if (key == "hangs") {
      out_.worker.hangs_at_seconds = seconds(key, value, kMostMomentSeconds);
    } else if (key == "assumed-latency") {
      out_.worker.assumed_latency_seconds = seconds(key, value, kMostLatencySeconds);
    } else if (key == "link") {
      if (!valid_name(value)) refuse(base::text("link is ", quoted(value), ", no name"));
      out_.link = value;
    } else {
      refuse(base::text(
          quoted(key),
          " is unknown; known: latency, jitter, claim, inner, spawn, slow, fails, hangs, assumed-latency, link"));
    }
    if (has(key)) refuse(base::text(key, " is given twice"));
    seen_.push_back(key);
  }

  void slow(std::string_view text) {
    std::optional<std::string_view> rest = text;
    const std::optional<double> factor = number_of<double>(cut(rest, '@'));
    if (!factor || !rest) refuse(base::text("slow is ", quoted(text), ", not FACTOR@TIME such as 10@2s"));
    if (!(*factor > 1 && *factor <= kMostSlowFactor))
      refuse(base::text("slow is ", quoted(text), ": the factor is not above 1 and at most ",
                        base::fixed(kMostSlowFactor, 0)));
    out_.worker.slow_factor = *factor;
    out_.worker.slow_from_seconds = seconds("slow", *rest, kMostMomentSeconds);
  }

  void combinations() const {
    if (has("spawn") && !has("inner")) refuse("spawn is the part of a task before its inner tasks: it needs inner=N");
    if (has("claim") && has("inner"))
      refuse("claim has no meaning with inner: the resource of its name says how many tasks a group holds");
  }

  double seconds(std::string_view key, std::string_view text, double most) const {
    constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
    for (const auto &[unit, unit_seconds] : kUnits) {
      if (!text.ends_with(unit)) continue;
      const std::optional<double> value = number_of<double>(text.substr(0, text.size() - unit.size()));
      if (!value) break;
      if (!(*value * unit_seconds <= most))
        refuse(base::text(key, " is ", quoted(text), ", more than ", base::fixed(most, 0), " s"));
      return *value * unit_seconds;
    }
    refuse(base::text(key, " is ", quoted(text), ", no time such as 0.5s, 2ms, 30us"));
  }

  bool has(std::string_view key) const { return std::find(seen_.begin(), seen_.end(), key) != seen_.end(); }

  std::string_view text_;
  WorkerDescription out_;
  std::vector<std::string_view> seen_;  // keys of settings
};

}  // namespace

std::vector<WorkerDescription> parse_workers(std::span<const std::string_view> texts) {
  if (texts.empty()) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no worker: at least one is needed");
  std::vector<WorkerDescription> all;
  std::uint64_t total = 0;
  for (const std::string_view text : texts) {
    WorkerDescription one = WorkerParser(text).parse();
    total += std::uint64_t{one.count} * one.worker.member_count;
    if (total > kMostWorkers)
      complain("worker", text, base::text(total, " workers in all with it, more than ", kMostWorkers));
    const bool mixed = std::any_of(all.begin(), all.end(), [&](const WorkerDescription &known) {
      return known.worker.name == one.worker.name && known.is_groups != one.is_groups;
    });
    if (mixed) {
      complain("worker", text,
               base::text(one.worker.name, " is already the name of ", one.is_groups ? "single workers" : "groups"));
    }
    all.push_back(std::move(one));
  }
  return all;
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
                                   [&](const WorkerDescription &each) { return each.worker.name == name; });
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

Links parse_links(std::string_view text, std::span<const WorkerDescription> workers) {
  Links links;
  const auto has = [&](std::string_view name) {
    return std::any_of(links.begin(), links.end(), [&](const auto &link) { return link.first == name; });
  };
  for (std::optional<std::string_view> rest = text; rest && !text.empty();) {
    const std::string_view one = cut(rest, ',');
    std::optional<std::string_view> value = one;
    const std::string_view name = cut(value, '=');
    if (!value) complain("link", one, "not NAME=GBPS, such as pcie=25");
    if (!valid_name(name)) complain("link", one, base::text(quoted(name), " is no name"));
    if (has(name)) complain("link", one, "it has a speed already");
    if (std::none_of(workers.begin(), workers.end(), [&](const WorkerDescription &each) { return each.link == name; }))
      complain("link", one, base::text("no worker has :link=", name));
    links.emplace_back(name, speed("link", one, *value));
  }
  for (const WorkerDescription &each : workers) {
    if (!each.link.empty() && !has(each.link))
      complain(
          "link", each.link,
          base::text("worker ", each.worker.name, " is behind it, and it has no speed, such as ", each.link, "=25"));
  }
  return links;
}

std::vector<SimulatedWorker> to_workers(std::span<const WorkerDescription> descriptions, const Links &links,
                                        bool speeds_known) {
  std::vector<SimulatedWorker> workers;
  for (const WorkerDescription &each : descriptions) {
    SimulatedWorker worker = each.worker;
    if (speeds_known) worker.known_bytes_per_second = worker.bytes_per_second;
    for (std::size_t i = 0; i < links.size(); ++i)
      if (links[i].first == each.link) worker.link = i;
    workers.insert(workers.end(), each.count, worker);
  }
  return workers;
}

}  // namespace tandem::bench
