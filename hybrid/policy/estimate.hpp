// How fast a worker is, learned from the chunks that it finished.
#pragma once

#include <cstdint>

namespace tandem::hybrid {

class Estimate {
 public:
  // latency_seconds: of every task. bytes_per_second: what is known beforehand, and how far off it may be, as a part of
  // it; 0: nothing is.
  Estimate(double latency_seconds, double bytes_per_second, double uncertainty) noexcept;

  void observe(std::uint64_t bytes, double seconds) noexcept;

  bool is_known() const noexcept { return bytes_ > 0; }
  double bytes_per_second() const noexcept { return seconds_ > 0 ? bytes_ / seconds_ : 0; }
  double latency_seconds() const noexcept { return latency_seconds_; }
  double uncertainty() const noexcept;
  double seconds_for(double bytes) const noexcept { return latency_seconds_ + bytes / bytes_per_second(); }

  // While little is known no chunk should be more than so much.
  double most_bytes() const noexcept;

 private:
  double latency_seconds_;
  double bytes_, seconds_;  // of the latest chunks, older ones weigh less
  double spread_;           // of the latest chunks' times around what was expected
  double prior_ = 0;        // how far off the estimate itself may be
  double most_bytes_ = 0;   // of the largest chunk that was seen; 0 with a prior
  bool had_prior_;
};

}  // namespace tandem::hybrid
