// SPDX-License-Identifier: Apache-2.0
// Records which thread did what when. The tasks record themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/studies/contenders.hpp"

namespace tandem::studies {

class Spans {
 public:
  struct Span {
    double begin, end;
    const char *kind;
  };

  // Deletes all spans, and starts the clock.
  void start() {
    const std::lock_guard lock(mutex_);
    for (auto &each : threads_) each->clear();
    began_ = wall_seconds();
  }

  template <class Work>
  void record(const char *kind, Work work) {
    std::vector<Span> &mine = of_this_thread();
    const double begin = wall_seconds();
    work();
    mine.push_back({begin, wall_seconds(), kind});
  }

  // [[thread, start, seconds, kind], ...] of all threads that have spans.
  nlohmann::ordered_json json();

 private:
  std::vector<Span> &of_this_thread() {
    thread_local std::vector<Span> *mine = nullptr;
    if (mine == nullptr) {
      const std::lock_guard lock(mutex_);
      threads_.push_back(std::make_unique<std::vector<Span>>());
      mine = threads_.back().get();
      mine->reserve(1 << 14);
    }
    return *mine;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<std::vector<Span>>> threads_;  // one Spans in a process
  double began_ = 0;
};

}  // namespace tandem::studies
