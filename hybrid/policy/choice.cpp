// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/choice.hpp"

#include <algorithm>
#include <limits>

#include "hybrid/policy/rule.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kLeastGain = 0.05;          // of the time: a smaller gain is within the error of the prediction
constexpr double kTrialShare = 0.01;         // of the time of all runs, for trials of one member
constexpr double kMostTrialSeconds = 10e-3;  // a longer trial in a long run would be rare
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

}  // namespace

double alone_seconds(const Way &way, double bytes) {
  if (way.alone.is_seen()) return way.alone.seconds_for(bytes);
  return way.together.latency_seconds() + bytes / (way.together.bytes_per_second() * way.lanes);
}

std::size_t choose(std::span<const Way> ways, double bytes) {
  std::size_t best = kTogether;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (!ways[i].is_seen()) {
      if (ways[i].may_share) return kTogether;
      continue;
    }
    const double seconds = alone_seconds(ways[i], bytes);
    if (seconds >= best_seconds) continue;
    best = i;
    best_seconds = seconds;
  }
  const double together = finish_seconds(
      [&](auto body) {
        for (const Way &each : ways) {
          if (!each.may_share || !each.is_seen()) continue;
          const Speed &speed = each.together.is_seen() ? each.together : each.alone;
          body(Candidate{speed.bytes_per_second() * (each.together.is_seen() ? each.lanes : 1),
                         speed.latency_seconds()});
        }
      },
      bytes);
  return together < (1 - kLeastGain) * best_seconds ? kTogether : best;
}

double trial_bytes(const Way &way, double bytes, double best_seconds, double since_seconds) {
  const double latency = alone_seconds(way, 0), seconds_per_byte = (alone_seconds(way, bytes) - latency) / bytes;
  const double seconds = std::max(latency, std::min(best_seconds, kMostTrialSeconds));
  const double part = std::min(bytes, seconds / seconds_per_byte);
  return alone_seconds(way, part) <= kTrialShare * since_seconds ? part : 0;
}

std::uint64_t worth_from(std::span<const Way> ways) {
  const auto is_worth_it = [&](std::uint64_t bytes) { return choose(ways, static_cast<double>(bytes)) != 0; };
  if (!is_worth_it(kMostBytes)) return UINT64_MAX;
  std::uint64_t too_few = 0, enough = kMostBytes;
  while (enough - too_few > 1) {
    const std::uint64_t middle = too_few + (enough - too_few) / 2;
    (is_worth_it(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace tandem::hybrid
