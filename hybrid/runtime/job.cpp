#include "hybrid/runtime/job.hpp"

#include <algorithm>
#include <cstring>

#include "hybrid/runtime/prepared.hpp"

namespace tandem::hybrid {
namespace {

using core::Mode;
using core::Task;

constexpr std::uint64_t kLine = 64;

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

// Records for the outputs of all parts, in their order.
std::size_t record_count(const Work &work, const std::vector<TaskPart> &parts) {
  std::size_t count = 0;
  for (const TaskPart &part : parts)
    if (work.task(part.task).mode == Mode::compare) count += work.task(part.task).prepared->rows();
  return count;
}

}  // namespace

void Staging::release() noexcept {
  memory_.reset();
  capacity_bytes_ = 0;
}

void Staging::lay_out(const Work &work, const std::vector<TaskPart> &parts, std::uint64_t least_bytes) {
  std::uint64_t need = 0;
  for (const TaskPart &part : parts) {
    const auto &own = *work.task(part.task).prepared;
    need += (part.length_bytes + kLine - 1) / kLine * kLine * (own.rows() + own.columns());
  }
  if (need > capacity_bytes_) {
    memory_.reset();
    capacity_bytes_ = 0;
    memory_ = backend_->staging_memory(std::max(need, least_bytes));
    capacity_bytes_ = std::max(need, least_bytes);
  }
  places_.clear();
  inputs_.clear();
  outputs_.clear();
  std::byte *free = memory_.get();
  for (const TaskPart &part : parts) {
    const auto &own = *work.task(part.task).prepared;
    const std::uint64_t pitch = (part.length_bytes + kLine - 1) / kLine * kLine;
    places_.push_back({part, inputs_.size(), outputs_.size()});
    for (unsigned c = 0; c < own.columns(); ++c, free += pitch) inputs_.push_back(free);
    for (unsigned r = 0; r < own.rows(); ++r, free += pitch) outputs_.push_back(free);
  }
  const_inputs_.assign(inputs_.begin(), inputs_.end());
  mismatches_.assign(record_count(work, parts), {});
  tasks_.clear();
  std::size_t record = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place &place = places_[i];
    const Mode mode = work.task(place.part.task).mode;
    // The XOR of accumulate happens in the caller's memory, once: here the product alone.
    Task task{
        prepared[i].get(),       const_inputs_.data() + place.first_input,      outputs_.data() + place.first_output, 0,
        place.part.length_bytes, mode == Mode::accumulate ? Mode::assign : mode};
    if (mode == Mode::compare) {
      task.mismatches = mismatches_.data() + record;
      record += prepared[i]->rows();
    }
    tasks_.push_back(task);
  }
}

void Staging::copy_in(const Work &work) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place &place = places_[i];
    const Task &task = work.task(place.part.task);
    const std::uint64_t from = task.offset_bytes + place.part.offset_bytes;
    for (unsigned c = 0; c < task.prepared->columns(); ++c)
      std::memcpy(inputs_[place.first_input + c], task.inputs[c] + from, place.part.length_bytes);
    if (task.mode != Mode::compare) continue;
    for (unsigned r = 0; r < task.prepared->rows(); ++r)
      std::memcpy(outputs_[place.first_output + r], task.outputs[r] + from, place.part.length_bytes);
  }
}

void Staging::run(core::Control &control) { backend_->run(tasks_, control); }

void Staging::copy_out(const Work &work, const std::vector<Range> &own) const {
  for (const Range &range : own) {
    for (const TaskPart &part : work.parts(range)) {
      const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place &each) {
        return each.part.task == part.task && each.part.offset_bytes <= part.offset_bytes &&
               part.offset_bytes < each.part.offset_bytes + each.part.length_bytes;
      });
      const Task &task = work.task(part.task);
      const std::uint64_t skip = part.offset_bytes - place->part.offset_bytes;
      for (unsigned r = 0; r < task.prepared->rows(); ++r) {
        const std::byte *from = outputs_[place->first_output + r] + skip;
        std::byte *to = task.outputs[r] + task.offset_bytes + part.offset_bytes;
        if (task.mode == Mode::assign) std::memcpy(to, from, part.length_bytes);
        if (task.mode == Mode::accumulate) exclusive_or(to, from, part.length_bytes);
      }
    }
  }
}

namespace {

// `start_bytes`: where the part begins in the shards, if its records count from 0.
void merge(const Task &task, const core::Mismatch *found, std::uint64_t start_bytes) {
  for (unsigned r = 0; r < task.prepared->rows(); ++r) {
    core::Mismatch each = found[r];
    if (each.first_bytes != core::Mismatch::kNone) each.first_bytes += start_bytes;
    task.mismatches[r].merge(each);
  }
}

}  // namespace

void Staging::merge_mismatches(const Work &work) const {
  const core::Mismatch *found = mismatches_.data();
  for (const Place &place : places_) {
    const Task &task = work.task(place.part.task);
    if (task.mode != Mode::compare) continue;
    merge(task, found, task.offset_bytes + place.part.offset_bytes);
    found += task.prepared->rows();
  }
}

InPlace::InPlace(const Work &work, const std::vector<TaskPart> &parts, std::size_t member, core::Backend &backend)
    : parts_(parts), mismatches_(record_count(work, parts)) {
  std::size_t record = 0;
  for (const TaskPart &part : parts_) {
    Task task = work.task(part.task);
    prepared_.push_back(hybrid_of(task).of(member, backend));
    task.prepared = prepared_.back().get();
    task.ranges = nullptr;  // of the whole
    task.offset_bytes += part.offset_bytes;
    task.length_bytes = part.length_bytes;
    if (task.mode == Mode::compare) {
      task.mismatches = mismatches_.data() + record;
      record += task.prepared->rows();
    }
    tasks_.push_back(task);
  }
}

void InPlace::merge_mismatches(const Work &work) const {
  const core::Mismatch *found = mismatches_.data();
  for (const TaskPart &part : parts_) {
    const Task &task = work.task(part.task);
    if (task.mode != Mode::compare) continue;
    merge(task, found, 0);
    found += task.prepared->rows();
  }
}

}  // namespace tandem::hybrid
