// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <thread>

namespace tandem::bench {
namespace {

// Returns how many calls fill a slice.
std::size_t calls_for(const Contestant &contestant, double slice_seconds) {
  std::size_t calls = 1;
  double seconds = contestant.run(calls);
  while (seconds < slice_seconds / 8 && calls < (std::size_t{1} << 40)) {
    calls *= 2;
    seconds = contestant.run(calls);
  }
  const double wanted = std::ceil(static_cast<double>(calls) * slice_seconds / std::max(seconds, 1e-9));
  return std::max<std::size_t>(1, static_cast<std::size_t>(wanted));
}

}  // namespace

double seconds_now(BenchClock clock) {
  timespec time{};
  clock_gettime(clock == BenchClock::cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double Samples::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::min() const { return *std::min_element(seconds.begin(), seconds.end()); }
double Samples::max() const { return *std::max_element(seconds.begin(), seconds.end()); }

std::vector<Samples> alternate(const std::vector<Contestant> &contestants, unsigned repeats, double slice_seconds) {
  std::vector<Samples> samples;
  std::vector<std::size_t> calls;
  for (const Contestant &contestant : contestants) {
    samples.push_back({contestant.name, {}});
    calls.push_back(calls_for(contestant, slice_seconds));
  }
  for (unsigned repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t turn = 0; turn < contestants.size(); ++turn) {
      const std::size_t i = (turn + repeat) % contestants.size();
      contestants[i].run(1);
      samples[i].seconds.push_back(contestants[i].run(calls[i]) / static_cast<double>(calls[i]));
    }
  }
  return samples;
}

double time_together(const std::vector<std::function<void()>> &bodies, BenchClock clock) {
  const std::size_t count = bodies.size();
  std::vector<double> starts(count), ends(count);
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> ready = 0;
  const auto work = [&](std::size_t i) {
    ready.fetch_add(1);
    while (ready.load() < count) std::this_thread::yield();
    starts[i] = seconds_now(clock);
    try {
      bodies[i]();
    } catch (...) {
      errors[i] = std::current_exception();
    }
    ends[i] = seconds_now(clock);
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back(work, i);
    work(0);
  }
  for (const std::exception_ptr &error : errors) {
    if (error) std::rethrow_exception(error);
  }
  if (clock == BenchClock::wall)
    return *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
  double longest = 0;
  for (std::size_t i = 0; i < count; ++i) longest = std::max(longest, ends[i] - starts[i]);
  return longest;
}

}  // namespace tandem::bench
