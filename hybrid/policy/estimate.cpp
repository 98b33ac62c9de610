#include "hybrid/policy/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::hybrid {
namespace {

constexpr double kMemory = 0.85;       // what an observation keeps of its weight when the next one comes
constexpr double kSurprise = 2.5;      // times the spread: the worker has changed, what is older counts no more
constexpr double kFirstSpread = 0.15;  // of task times, until some were seen
constexpr double kGrowth = 20;         // of the largest chunk seen, while a speed is learned
constexpr double kLeastOwnTime = 0.3;  // of a task's time: at least so much is taken for its bytes, not for latency

}  // namespace

Estimate::Estimate(double latency_seconds, double bytes_per_second, double uncertainty) noexcept
    : latency_seconds_(latency_seconds),
      bytes_(bytes_per_second),
      seconds_(bytes_per_second > 0 ? 1 : 0),
      spread_(kFirstSpread),
      prior_(bytes_per_second > 0 ? uncertainty : 1),
      had_prior_(bytes_per_second > 0) {}

void Estimate::observe(std::uint64_t bytes, double seconds) noexcept {
  const double own = std::max(seconds - latency_seconds_, kLeastOwnTime * seconds);
  const double weight = static_cast<double>(bytes);
  if (!is_known()) {
    bytes_ = weight;
    seconds_ = own;
    most_bytes_ = weight;
    prior_ = 0.5;
    return;
  }
  // Mostly latency: it says next to nothing about the speed.
  if (weight < latency_seconds_ * bytes_per_second()) return;
  if (had_prior_ && most_bytes_ == 0) {
    // What was known beforehand counts as one chunk of this size.
    seconds_ = weight / bytes_per_second();
    bytes_ = weight;
  }
  const double expected = seconds_for(weight);
  const double off = std::abs(seconds - expected) / expected;
  const bool changed = off > std::max(kSurprise * (spread_ + prior_), 1.0);
  if (changed) {
    bytes_ = seconds_ = 0;
  } else {
    spread_ += (off - spread_) * (1 - kMemory);
  }
  bytes_ = bytes_ * kMemory + weight;
  seconds_ = seconds_ * kMemory + own;
  most_bytes_ = std::max(most_bytes_, weight);
  prior_ = std::max(prior_ / 2, spread_ / 2);
}

double Estimate::uncertainty() const noexcept { return prior_ + spread_; }

double Estimate::most_bytes() const noexcept {
  return had_prior_ ? std::numeric_limits<double>::infinity() : most_bytes_ * kGrowth;
}

}  // namespace tandem::hybrid
