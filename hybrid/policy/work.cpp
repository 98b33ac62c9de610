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
  std::size_t input_count = 0, output_count = 0;
  for (const core::Task &each : tasks_) {
    input_count += each.prepared->columns();
    output_count += each.prepared->rows();
  }
  inputs_.reserve(input_count);  // the tasks point into them
  outputs_.reserve(output_count);
  for (core::Task &each : tasks_) {
    const auto *const inputs = inputs_.data() + inputs_.size();
    const auto *const outputs = outputs_.data() + outputs_.size();
    inputs_.insert(inputs_.end(), each.inputs, each.inputs + each.prepared->columns());
    outputs_.insert(outputs_.end(), each.outputs, each.outputs + each.prepared->rows());
    each.inputs = inputs;
    each.outputs = outputs;
  }
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

std::vector<Work::Part> Work::parts(const Range &range) const {
  std::vector<Part> list;
  for (std::uint64_t at = range.begin; at < range.end;) {
    const std::size_t i = task_at(at);
    const std::uint64_t end = std::min(range.end, starts_[i + 1]);
    Part part{i, tasks_[i]};
    part.task.offset_bytes += (at - starts_[i]) / weight(i);
    part.task.length_bytes = (end - at) / weight(i);
    part.task.ranges = nullptr;
    list.push_back(part);
    at = end;
  }
  return list;
}

}  // namespace tandem::hybrid
