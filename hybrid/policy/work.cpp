// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/work.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace tandem::hybrid {
namespace {

// Cuts in a shard are multiples of this, and of the operator's granularity: whole lines of caches and devices.
constexpr std::uint64_t kGridBytes = 256;

}  // namespace

Work::Work(std::span<const core::Task> tasks) : tasks_(tasks.begin(), tasks.end()) {
  starts_.reserve(tasks_.size() + 1);
  starts_.push_back(0);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    std::uint64_t moved = 0, end = 0;
    if (__builtin_mul_overflow(weight(i), tasks_[i].length_bytes, &moved) ||
        __builtin_add_overflow(starts_.back(), moved, &end)) {
      base::fail(TANDEM_ERROR_TOO_LARGE, "the stripes of one call move more than 2^64 bytes");
    }
    starts_.push_back(end);
  }
}

std::size_t Work::task_at(std::uint64_t position) const noexcept {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end() - 1, position) - starts_.begin()) - 1;
}

std::uint64_t Work::cut(std::uint64_t position) const noexcept {
  if (position >= bytes()) return bytes();
  const std::size_t i = task_at(position);
  const std::uint64_t step = weight(i) * std::lcm(kGridBytes, tasks_[i].prepared->granularity_bytes());
  const std::uint64_t in_task = position - starts_[i];
  const std::uint64_t rest = in_task % step;
  if (rest == 0) return position;
  const std::uint64_t left = starts_[i + 1] - position;
  return left <= step - rest ? starts_[i + 1] : position + (step - rest);
}

void Work::parts(const Range &range, std::vector<TaskPart> *parts_out) const {
  parts_out->clear();
  for (std::uint64_t at = range.begin; at < range.end;) {
    const std::size_t i = task_at(at);
    const std::uint64_t end = std::min(range.end, starts_[i + 1]);
    parts_out->push_back({i, (at - starts_[i]) / weight(i), (end - at) / weight(i)});
    at = end;
  }
}

std::vector<core::Task> Work::tasks(const Range &range) const {
  std::vector<TaskPart> list;
  parts(range, &list);
  std::vector<core::Task> tasks;
  for (const TaskPart &part : list) {
    tasks.push_back(tasks_[part.task]);
    tasks.back().offset_bytes += part.offset_bytes;
    tasks.back().length_bytes = part.length_bytes;
  }
  return tasks;
}

}  // namespace tandem::hybrid
