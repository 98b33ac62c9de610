// Fair timing on a machine with noise: everybody in turn, many times, and medians.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tandem::bench {

enum class BenchClock {
  wall,
  cpu  // the time that a thread itself was running: leaves out that others had its core
};

double seconds_now(BenchClock clock);  // since some moment

struct Contestant {
  std::string name;
  std::function<double(std::size_t calls)> run;  // makes that many calls and returns the seconds they took
};

// Seconds per call, one sample per repeat.
struct Samples {
  std::string name;
  std::vector<double> seconds;

  double median() const;
  double min() const;
  double max() const;
};

// Every repeat lets every contestant run for about slice_seconds, in an order that rotates. Each slice is warmed up
// with one call that is not counted.
std::vector<Samples> alternate(const std::vector<Contestant> &contestants, unsigned repeats, double slice_seconds);

// Runs each body on a thread of its own, the first on the calling one; all start together. Wall clock: seconds from the
// first start to the last end. CPU clock: of the thread that took longest.
double time_together(const std::vector<std::function<void()>> &bodies, BenchClock clock);

}  // namespace tandem::bench
