// SPDX-License-Identifier: Apache-2.0
// Fair timing on a machine with noise: contestants take turns, many times; medians count.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tandem::bench {

enum class BenchClock {
  wall,
  cpu  // the time that the thread itself ran, without the time that others had its core
};

double seconds_now(BenchClock clock);  // since some moment

struct Contestant {
  std::string name;
  std::function<double(std::size_t calls)> run;  // makes so many calls, returns how many seconds they took
};

// Seconds per call, one sample per repeat.
struct Samples {
  std::string name;
  std::vector<double> seconds;

  double median() const;
  double min() const;
  double max() const;
};

// In each repeat, every contestant runs for about slice_seconds, in an order that rotates. One uncounted call warms up
// each slice.
std::vector<Samples> alternate(const std::vector<Contestant> &contestants, unsigned repeats, double slice_seconds);

// Runs each body on its own thread, the first on the calling thread; all start together. Returns seconds. Wall clock:
// from the first start to the last end. CPU clock: of the thread that took longest.
double time_together(const std::vector<std::function<void()>> &bodies, BenchClock clock);

}  // namespace tandem::bench
