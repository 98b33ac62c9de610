// SPDX-License-Identifier: Apache-2.0
// The tasks of one run laid end to end, so that a run consists of ranges on one long axis. A position counts the bytes
// that are moved, inputs and outputs, up to there. This class knows where tasks may be cut, and which parts of them a
// range has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend.hpp"
#include "hybrid/policy/share.hpp"

namespace tandem::hybrid {

class Work {
 public:
  // Tasks with rows, columns and bytes. Copies their lists of shards: a device that hangs looks at them after the call.
  // Throws Error (TOO_LARGE).
  explicit Work(std::span<const core::Task> tasks);
  Work(const Work &) = delete;
  Work &operator=(const Work &) = delete;

  std::uint64_t bytes() const noexcept { return starts_.back(); }
  std::uint64_t cut(std::uint64_t position) const noexcept;  // the first cut at this position or later

  // A part of a task.
  struct Part {
    std::size_t of;   // index of the whole task
    core::Task task;  // with the operator of the whole one, and without its places of differences
  };
  std::vector<Part> parts(const Range &range) const;  // of a range between two cuts
  std::span<const core::Task> tasks() const noexcept { return tasks_; }

 private:
  std::size_t task_at(std::uint64_t position) const noexcept;
  std::uint64_t weight(std::size_t task) const noexcept {
    return std::uint64_t{tasks_[task].prepared->rows()} + tasks_[task].prepared->columns();
  }

  std::vector<const std::byte *> inputs_;
  std::vector<std::byte *> outputs_;
  std::vector<core::Task> tasks_;
  std::vector<std::uint64_t> starts_;  // of each task, and the end
};

}  // namespace tandem::hybrid
