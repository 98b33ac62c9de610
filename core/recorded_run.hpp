// SPDX-License-Identifier: Apache-2.0
// Records the tasks that backends run in a timeline.
#pragma once

#include <exception>
#include <span>
#include <string_view>

#include "base/timeline.hpp"
#include "core/backend.hpp"

namespace tandem::core {

// "assign 4x10", for people: the mode, outputs x inputs. No allocation.
class TaskText {
 public:
  explicit TaskText(const Task &task) noexcept;
  std::string_view text() const noexcept { return {text_, length_}; }

 private:
  char text_[40];
  std::size_t length_;
};

// Records tasks that the calling thread runs as one span on its row. The span begins here and ends with this object.
// Their bytes do not count if an exception ends them. Without a timeline it costs one comparison. Keeps `tasks` and
// `kind`.
class RecordedRun {
 public:
  RecordedRun(base::Timeline *timeline, std::string_view kind, std::span<const Task> tasks) noexcept
      : timeline_(timeline) {
    if (timeline_ == nullptr) return;
    kind_ = kind;
    tasks_ = tasks;
    exception_count_ = std::uncaught_exceptions();
    start_seconds_ = base::Timeline::now();
  }
  ~RecordedRun() {
    if (timeline_ != nullptr) record();
  }
  RecordedRun(const RecordedRun &) = delete;
  RecordedRun &operator=(const RecordedRun &) = delete;

 private:
  void record() const noexcept;

  base::Timeline *timeline_;
  std::string_view kind_;
  std::span<const Task> tasks_;
  int exception_count_ = 0;
  double start_seconds_ = 0;
};

}  // namespace tandem::core
