// SPDX-License-Identifier: Apache-2.0
// The time of a worker's tasks: latency + bytes / speed. Both are learned from finished tasks.
#pragma once

namespace tandem::hybrid {

class Speed {
 public:
  Speed() = default;  // unknown
  // A stored or assumed speed. The first tasks overrule it.
  Speed(double latency_seconds, double bytes_per_second) noexcept;

  void observe(double bytes, double seconds) noexcept;

  bool is_seen() const noexcept { return weight_ > 0; }
  // Whether latency and speed are told apart, which needs tasks of two sizes.
  bool is_known() const noexcept { return is_known_; }

  // With tasks of only one size the latency is 0.
  double latency_seconds() const noexcept { return latency_; }
  double bytes_per_second() const noexcept { return 1 / seconds_per_byte_; }
  double seconds_for(double bytes) const noexcept { return latency_ + bytes * seconds_per_byte_; }
  double most_bytes() const noexcept { return most_bytes_; }  // of the largest task so far
  // Enough to measure it again: two latencies' work. With an unknown latency a few bytes tell it.
  double probe_bytes() const noexcept;
  // The usual error of a prediction, as a part of the task's time.
  double uncertainty() const noexcept { return uncertainty_; }

 private:
  void fit() noexcept;

  // Sums for a line through (bytes, seconds), weighted by 1 / seconds^2, because errors are parts of the time. Older
  // tasks weigh less.
  double weight_ = 0, bytes_ = 0, seconds_ = 0, bytes_bytes_ = 0, bytes_seconds_ = 0;
  double shortest_seconds_ = 0, most_bytes_ = 0;
  double latency_ = 0, seconds_per_byte_ = 0;
  double uncertainty_ = 0;
  bool is_known_ = false;
};

}  // namespace tandem::hybrid
