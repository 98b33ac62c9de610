// SPDX-License-Identifier: Apache-2.0
// The tasks of one run laid end to end, so that a run consists of ranges on one long axis. A position counts the bytes
// that are moved, inputs and outputs, up to there. This class knows where tasks may be cut, and which parts of them a
// range has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend.hpp"
#include "hybrid/policy/ranges.hpp"

namespace tandem::hybrid {

// A range of bytes of one task's shards.
struct TaskPart {
  std::size_t task;
  std::uint64_t offset_bytes, length_bytes;
};

class Work {
 public:
  // Tasks with rows, columns and bytes. Throws Error (TOO_LARGE).
  explicit Work(std::span<const core::Task> tasks);

  std::uint64_t bytes() const noexcept { return starts_.back(); }
  std::uint64_t cut(std::uint64_t position) const noexcept;  // the first cut at this position or later
  // The parts of a range between two cuts. Reuses the vector's memory.
  void parts(const Range &range, std::vector<TaskPart> *parts_out) const;
  std::vector<core::Task> tasks(const Range &range) const;  // the same as tasks
  const core::Task &task(std::size_t index) const noexcept { return tasks_[index]; }
  std::size_t task_count() const noexcept { return tasks_.size(); }

 private:
  std::size_t task_at(std::uint64_t position) const noexcept;
  std::uint64_t weight(std::size_t task) const noexcept {
    return std::uint64_t{tasks_[task].prepared->rows()} + tasks_[task].prepared->columns();
  }

  std::vector<core::Task> tasks_;
  std::vector<std::uint64_t> starts_;  // of each task, and the end
};

}  // namespace tandem::hybrid
