// SPDX-License-Identifier: Apache-2.0
// A limit on the bytes that a call reads in a second.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace tandem::base {

class Pace {
 public:
  explicit Pace(std::uint64_t bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {}  // 0: no limit

  // Waits until done_bytes are allowed, counted from the construction on. stop(): true ends the wait; asked ten times a
  // second.
  template <class Stop>
  void wait(std::uint64_t done_bytes, const Stop &stop) const {
    if (bytes_per_second_ == 0) return;
    const std::chrono::duration<double> due(static_cast<double>(done_bytes) / static_cast<double>(bytes_per_second_));
    for (;;) {
      const std::chrono::duration<double> left = due - (std::chrono::steady_clock::now() - started_);
      if (left.count() <= 0 || stop()) return;
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, std::chrono::milliseconds(100)));
    }
  }

 private:
  std::uint64_t bytes_per_second_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::base
