// SPDX-License-Identifier: Apache-2.0
#include "hybrid/runtime/chunk.hpp"

#include <algorithm>
#include <cstring>

#include "core/registered_memory.hpp"

namespace tandem::hybrid {
namespace {

using core::Mode;
using core::Task;

constexpr std::uint64_t kLine = 64;

// The offset of a part in the caller's shards.
std::uint64_t start_of(const Task &task, const TaskPart &part) { return task.offset_bytes + part.offset_bytes; }

std::uint64_t pitch_of(const TaskPart &part) { return (part.length_bytes + kLine - 1) / kLine * kLine; }

void exclusive_or(std::byte *to, const std::byte *from, std::uint64_t length_bytes) {
  std::uint64_t i = 0;
  for (; i + 8 <= length_bytes; i += 8) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, to + i, 8);
    std::memcpy(&b, from + i, 8);
    a ^= b;
    std::memcpy(to + i, &a, 8);
  }
  for (; i < length_bytes; ++i) to[i] ^= from[i];
}

}  // namespace

bool reads_registered_memory(std::span<const Task> tasks) {
  const auto is_registered = [](const Task &task, const std::byte *const *shards, unsigned count) {
    return std::all_of(shards, shards + count, [&](const std::byte *shard) {
      return core::is_registered(shard + task.offset_bytes, task.length_bytes);
    });
  };
  return std::all_of(tasks.begin(), tasks.end(), [&](const Task &task) {
    return is_registered(task, task.inputs, task.prepared->columns()) &&
           (task.mode != Mode::compare || is_registered(task, task.outputs, task.prepared->rows()));
  });
}

const std::vector<TaskPart> &Chunk::cut(const Work &work, const Range &range) {
  work.parts(range, &parts_);
  prepared.clear();
  return parts_;
}

void Chunk::release() noexcept {
  memory_.reset();
  capacity_bytes_ = 0;
}

void Chunk::lay_out(const Work &work, Staged staged) {
  staged_ = staged;
  std::uint64_t need = 0;
  std::size_t shard_count = 0, record_count = 0;
  for (const TaskPart &part : parts_) {
    const Task &task = work.task(part.task);
    const unsigned rows = task.prepared->rows(), columns = task.prepared->columns();
    if (staged == Staged::all) need += pitch_of(part) * columns;
    if (stages_outputs(task)) need += pitch_of(part) * rows;
    shard_count += rows + columns;
    if (task.mode == Mode::compare) record_count += rows;
  }
  if (need > capacity_bytes_) {
    release();
    memory_ = backend_->staging_memory(need);
    capacity_bytes_ = need;
  }
  shards_.clear();
  inputs_.clear();
  tasks_.clear();
  shards_.reserve(shard_count);  // tasks point into them
  inputs_.reserve(shard_count);
  mismatches_.assign(record_count, {});
  std::byte *free = memory_.get();
  std::size_t record = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const TaskPart &part = parts_[i];
    const Task &whole = work.task(part.task);
    const auto place = [&](const std::byte *callers, bool is_staged) {
      shards_.push_back(is_staged ? free : const_cast<std::byte *>(callers) + start_of(whole, part));
      if (is_staged) free += pitch_of(part);
    };
    const std::size_t first = shards_.size();
    for (unsigned c = 0; c < whole.prepared->columns(); ++c) {
      place(whole.inputs[c], staged == Staged::all);
      inputs_.push_back(shards_.back());
    }
    for (unsigned r = 0; r < whole.prepared->rows(); ++r) place(whole.outputs[r], stages_outputs(whole));
    Task task = whole;
    task.prepared = prepared[i];
    task.inputs = inputs_.data() + inputs_.size() - whole.prepared->columns();
    task.outputs = shards_.data() + first + whole.prepared->columns();
    task.offset_bytes = 0;
    task.length_bytes = part.length_bytes;
    task.ranges = nullptr;  // it belongs to the whole run
    if (task.mode == Mode::accumulate && stages_outputs(whole)) task.mode = Mode::assign;
    if (task.mode == Mode::compare) {
      task.mismatches = mismatches_.data() + record;
      record += whole.prepared->rows();
    }
    tasks_.push_back(task);
  }
}

void Chunk::copy_in(const Work &work) {
  if (staged_ != Staged::all) return;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Task &own = tasks_[i], &whole = work.task(parts_[i].task);
    const std::uint64_t from = start_of(whole, parts_[i]);
    for (unsigned c = 0; c < whole.prepared->columns(); ++c)
      std::memcpy(const_cast<std::byte *>(own.inputs[c]), whole.inputs[c] + from, own.length_bytes);
    if (whole.mode != Mode::compare) continue;
    for (unsigned r = 0; r < whole.prepared->rows(); ++r)
      std::memcpy(own.outputs[r], whole.outputs[r] + from, own.length_bytes);
  }
}

void Chunk::copy_out(const Work &work, const std::vector<Range> &own) const {
  std::vector<TaskPart> wanted;
  for (const Range &range : own) {
    work.parts(range, &wanted);
    for (const TaskPart &part : wanted) {
      const auto place = std::find_if(parts_.begin(), parts_.end(), [&](const TaskPart &each) {
        return each.task == part.task && each.offset_bytes <= part.offset_bytes &&
               part.offset_bytes < each.offset_bytes + each.length_bytes;
      });
      const Task &whole = work.task(part.task), &coded = tasks_[static_cast<std::size_t>(place - parts_.begin())];
      if (!stages_outputs(whole)) continue;
      for (unsigned r = 0; r < whole.prepared->rows(); ++r) {
        const std::byte *from = coded.outputs[r] + (part.offset_bytes - place->offset_bytes);
        std::byte *to = whole.outputs[r] + start_of(whole, part);
        if (whole.mode == Mode::assign) std::memcpy(to, from, part.length_bytes);
        if (whole.mode == Mode::accumulate) exclusive_or(to, from, part.length_bytes);
      }
    }
  }
}

void Chunk::merge_mismatches(const Work &work) const {
  const core::Mismatch *found = mismatches_.data();
  for (const TaskPart &part : parts_) {
    const Task &whole = work.task(part.task);
    if (whole.mode != Mode::compare) continue;
    for (unsigned r = 0; r < whole.prepared->rows(); ++r) {
      core::Mismatch one = *found++;
      if (one.byte_count != 0) one.first_bytes += start_of(whole, part);
      whole.mismatches[r].merge(one);
    }
  }
}

}  // namespace tandem::hybrid
