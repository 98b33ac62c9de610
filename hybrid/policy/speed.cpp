// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/speed.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::hybrid {
namespace {

constexpr double kKept = 0.93;             // of a task's weight when the next one comes
constexpr double kFirstUncertainty = 0.3;  // until tasks were compared with predictions
constexpr double kChanged = 2;             // times faster or slower than predicted: the worker has changed
constexpr double kSmall = 0.25;            // of the mean size
constexpr double kTwoSizes = 0.15;         // least relative variance of sizes for which a line is fitted
constexpr double kMostLatency = 0.95;      // of the shortest task's time
constexpr double kProbeLatencies = 2, kLeastProbeBytes = 64 << 10;

}  // namespace

Speed::Speed(double latency_seconds, double bytes_per_second) noexcept {
  // Starts as if two tasks were seen: one of a size that takes the latency again, and one four times as large.
  const double unit = std::max(latency_seconds, 1e-6) * bytes_per_second;
  for (const double bytes : {unit, 4 * unit}) observe(bytes, latency_seconds + bytes / bytes_per_second);
  uncertainty_ = kFirstUncertainty;
  most_bytes_ = std::numeric_limits<double>::infinity();
}

void Speed::observe(double bytes, double seconds) noexcept {
  if (!(bytes > 0) || !(seconds > 0) || !std::isfinite(bytes / seconds) || !std::isfinite(seconds / bytes)) return;
  if (is_known_) {
    const double factor = seconds / seconds_for(bytes);
    const double off = std::abs(factor - 1);
    const bool is_surprise = factor > kChanged || factor < 1 / kChanged;
    // A task far smaller than the mean measures latency, not speed.
    const bool is_small = bytes < kSmall * bytes_ / weight_;
    if (is_surprise && !is_small && bytes * seconds_per_byte_ > latency_) {
      // Starts again with this value: a mean of old and new would be wrong for long.
      const double weight = 1 / (factor * factor);
      weight_ *= weight;
      bytes_ *= weight;
      bytes_bytes_ *= weight;
      seconds_ *= weight * factor;
      bytes_seconds_ *= weight * factor;
      shortest_seconds_ *= factor;
    } else if (!is_surprise) {
      uncertainty_ += (1 - kKept) * (off - uncertainty_);
    }
  } else {
    uncertainty_ = kFirstUncertainty;
  }
  shortest_seconds_ = weight_ > 0 ? std::min(shortest_seconds_, seconds) : seconds;
  most_bytes_ = std::max(most_bytes_, bytes);
  const double weight = 1 / (seconds * seconds);
  weight_ = kKept * weight_ + weight;
  bytes_ = kKept * bytes_ + weight * bytes;
  seconds_ = kKept * seconds_ + weight * seconds;
  bytes_bytes_ = kKept * bytes_bytes_ + weight * bytes * bytes;
  bytes_seconds_ = kKept * bytes_seconds_ + weight * bytes * seconds;
  fit();
}

double Speed::probe_bytes() const noexcept {
  return is_known_ && latency_ > 0 ? kProbeLatencies * latency_ * bytes_per_second() : kLeastProbeBytes;
}

void Speed::fit() noexcept {
  const double variance = weight_ * bytes_bytes_ - bytes_ * bytes_;
  if (variance > kTwoSizes * weight_ * bytes_bytes_) {
    is_known_ = true;
    latency_ = (seconds_ * bytes_bytes_ - bytes_ * bytes_seconds_) / variance;
  }
  latency_ = std::clamp(latency_, 0.0, kMostLatency * shortest_seconds_);
  seconds_per_byte_ = (bytes_seconds_ - latency_ * bytes_) / bytes_bytes_;
}

}  // namespace tandem::hybrid
