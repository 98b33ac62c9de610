// SPDX-License-Identifier: Apache-2.0
// Common code of the tests of executors, budget and fork.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "core/budget.hpp"
#include "cpu/executors/executor.hpp"
#include "tests/support/sanitizers.hpp"

namespace tandem::test {

inline constexpr core::Need kOneCpu[] = {{core::Budget::kCpu, 1}};

enum class Kind { serial, pthread, openmp };

inline std::string kind_name(Kind kind) {
  switch (kind) {
    case Kind::serial:
      return "serial";
    case Kind::pthread:
      return "pthread";
    default:
      return "openmp";
  }
}

inline std::unique_ptr<cpu::Executor> make(Kind kind, const cpu::ExecutorOptions &options) {
  if (kind == Kind::serial) return cpu::make_serial_executor(options);
  if (kind == Kind::pthread) return cpu::make_pthread_executor(options);
#ifdef TANDEM_OPENMP_MODULE_FOLDER
  return cpu::make_openmp_executor_from(TANDEM_OPENMP_MODULE_FOLDER, options);
#else
  return cpu::make_openmp_executor(options);
#endif
}

// Why an executor cannot be tested in this build; "" if it can.
inline std::string why_not(Kind kind) {
  if (kind == Kind::serial || kind == Kind::pthread) return {};
  if (kThreadSanitizer) return "NOT RUN: the thread sanitizer does not understand OpenMP runtimes";
#ifndef TANDEM_OPENMP_MODULE_FOLDER
  try {
    make(kind, {});
  } catch (const base::Error &error) {
    return std::string("NOT RUN: ") + error.what();
  }
#endif
  return {};
}

inline unsigned process_thread_count() {
  unsigned count = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// pthread_join returns a moment before the kernel has taken the thread off /proc.
inline bool thread_count_becomes(unsigned wanted) {
  for (int i = 0; i < 5000 && process_thread_count() != wanted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return process_thread_count() == wanted;
}

// Or below: a thread of an earlier test may have been on its way out.
inline bool thread_count_falls_to(unsigned limit) {
  for (int i = 0; i < 5000 && process_thread_count() > limit; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return process_thread_count() <= limit;
}

class CountingBatch : public cpu::Batch {
 public:
  explicit CountingBatch(std::size_t item_count, std::function<void(std::size_t)> body = nullptr)
      : counts_(item_count), body_(std::move(body)) {}

  void run_item(std::size_t item) noexcept override {
    const int now = running_.fetch_add(1) + 1;
    int most = most_running_.load();
    while (most < now && !most_running_.compare_exchange_weak(most, now)) {
    }
    if (body_) body_(item);
    counts_.at(item).fetch_add(1);
    running_.fetch_sub(1);
  }

  // As new, without allocating.
  void reset() {
    for (auto &count : counts_) count = 0;
    most_running_ = 0;
  }

  std::size_t items_that_ran(int times) const {
    std::size_t found = 0;
    for (const auto &count : counts_) found += count.load() == times ? 1 : 0;
    return found;
  }
  bool every_item_ran_once() const { return items_that_ran(1) == counts_.size(); }
  int most_running() const { return most_running_.load(); }
  int running() const { return running_.load(); }

 private:
  std::vector<std::atomic<int>> counts_;
  std::function<void(std::size_t)> body_;
  std::atomic<int> running_{0};
  std::atomic<int> most_running_{0};
};

inline void work_for(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace tandem::test
