// SPDX-License-Identifier: Apache-2.0
// A range of a run, as tasks that one backend can run: on the caller's shards, or on staging memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/backend.hpp"
#include "hybrid/policy/work.hpp"

namespace tandem::hybrid {

// Which shards of a range lie in staging memory. Outputs do if their worker can fail or be late. The range is then
// written when it is complete, and the XOR of accumulate happens then, once.
enum class Staged { nothing, outputs, all };

// Whether all inputs of the tasks are registered memory of the program, which devices read directly.
bool reads_registered_memory(std::span<const core::Task> tasks);

// Belongs to one lane, and is used again for each of its ranges.
class Chunk {
 public:
  explicit Chunk(core::Backend &backend) : backend_(&backend) {}

  // Sets the parts of a range, and the prepared operators of all tasks in their order, which the caller keeps alive.
  const std::vector<TaskPart> &cut(const Work &work, const Range &range);
  std::vector<const core::Prepared *> prepared;
  // Throws Error (OUT_OF_MEMORY).
  void lay_out(const Work &work, Staged staged);

  void release() noexcept;  // the staging memory

  void copy_in(const Work &work);
  void run(core::Control &control) { backend_->run(tasks_, control); }
  std::span<const core::Task> tasks() const noexcept { return tasks_; }
  // Copies the staged results in `own` to the caller's shards.
  void copy_out(const Work &work, const std::vector<Range> &own) const;
  // Copies a compare's records to the caller's.
  void merge_mismatches(const Work &work) const;

 private:
  bool stages_outputs(const core::Task &task) const noexcept {
    return staged_ == Staged::all || (staged_ == Staged::outputs && task.mode != core::Mode::compare);
  }

  core::Backend *backend_;
  std::shared_ptr<std::byte> memory_;
  std::uint64_t capacity_bytes_ = 0;
  Staged staged_ = Staged::nothing;
  std::vector<TaskPart> parts_;
  std::vector<std::byte *> shards_;  // of all parts, inputs and then outputs of each; as the backend sees them
  std::vector<const std::byte *> inputs_;
  std::vector<core::Mismatch> mismatches_;
  std::vector<core::Task> tasks_;
};

}  // namespace tandem::hybrid
