#include "hybrid/policy/choice.hpp"

#include <limits>

#include "hybrid/policy/rule.hpp"

namespace tandem::hybrid {
namespace {

constexpr double kLeastGain = 0.05;  // of the time: less is lost by what is not known exactly

double alone_seconds(const Way &way, double bytes) {
  if (way.alone.is_seen()) return way.alone.seconds_for(bytes);
  return way.together.latency_seconds() + bytes / (way.together.bytes_per_second() * way.lanes);
}

}  // namespace

std::size_t choose(std::span<const Way> ways, double bytes) {
  std::size_t best = kTogether;
  double best_seconds = std::numeric_limits<double>::infinity();
  bool is_unknown = false;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (!ways[i].together.is_seen() && !ways[i].alone.is_seen()) {
      is_unknown = true;
      continue;
    }
    const double seconds = alone_seconds(ways[i], bytes);
    if (seconds >= best_seconds) continue;
    best = i;
    best_seconds = seconds;
  }
  if (is_unknown) return kTogether;
  const double together = finish_seconds(
      [&](auto body) {
        for (const Way &each : ways) {
          if (each.may_share && each.together.is_seen())
            body(Candidate{each.together.bytes_per_second() * each.lanes, each.together.latency_seconds()});
        }
      },
      bytes);
  return together < (1 - kLeastGain) * best_seconds ? kTogether : best;
}

}  // namespace tandem::hybrid
