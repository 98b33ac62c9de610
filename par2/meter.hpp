// SPDX-License-Identifier: Apache-2.0
// Progress of a call: all threads count, and the calling thread reports.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "base/pace.hpp"
#include "par2/error.hpp"
#include "par2/ranges.hpp"
#include "tandem/par2.h"

namespace tandem::par2 {

class Meter {
 public:
  Meter(tandem_par2_progress progress, void *user, std::uint64_t bytes_per_second = 0)
      : progress_(progress), user_(user), pace_(bytes_per_second) {}

  void add_total(std::uint64_t bytes) { total_ += bytes; }
  // Throws TANDEM_ERROR_CANCELLED on every thread once the callback has said so.
  void done(std::uint64_t bytes) {
    done_ += bytes;
    check_cancelled();
    if (bytes == 0) return;
    pace_.wait(done_, [this] {
      check_cancelled();
      return false;
    });
  }
  bool is_cancelled() {
    if (progress_ != nullptr && std::this_thread::get_id() == caller_ && Clock::now() - last_ >= kBetween) report();
    return cancelled_ && can_cancel_;
  }
  // The last moment to cancel.
  void commit() {
    if (progress_ != nullptr) report();
    done(0);
    can_cancel_ = false;
  }
  // At the end, when all is done.
  void finish() {
    done_ = total_.load();
    if (progress_ != nullptr) report();
    done(0);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetween{100};

  void check_cancelled() {
    if (is_cancelled()) fail(TANDEM_ERROR_CANCELLED, "the progress callback cancelled the call");
  }
  void report() {
    last_ = Clock::now();
    if (progress_(user_, done_, total_) != 0) cancelled_ = true;
  }

  const tandem_par2_progress progress_;
  void *const user_;
  const base::Pace pace_;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<std::uint64_t> done_{0}, total_{0};
  std::atomic<bool> cancelled_{false}, can_cancel_{true};
  Clock::time_point last_{};
};

inline Progress progress_of(Meter &meter) {
  return {[&](std::uint64_t bytes) { meter.done(bytes); }, [&](std::uint64_t bytes) { meter.add_total(bytes); }};
}

}  // namespace tandem::par2
