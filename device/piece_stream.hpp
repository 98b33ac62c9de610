// SPDX-License-Identifier: Apache-2.0
// Streams host shards through a device: one piece is uploaded while another is computed and a third is downloaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "device/session.hpp"

namespace tandem::device {

// A task on host memory, or small tasks of one matrix and mode, with their layout on the device. Columns are
// independent, so the shards of several stripes lie side by side there, as one longer stripe.
struct HostTask {
  const core::Task *task = nullptr;   // the first
  std::vector<std::uint64_t> starts;  // of each task, in bytes of the longer stripe: multiples of 64
  std::uint64_t length_bytes = 0;     // of the longer stripe
  Variant variant;
  // Whether the device reads, or writes, this shard directly. Only for a task by itself.
  std::vector<bool> input_is_direct, output_is_direct;
  std::uint64_t check_bytes = 0;  // of each shard of the first piece: AnswerCheck

  bool compares() const noexcept { return task->mode == core::Mode::compare; }
  unsigned columns() const noexcept { return task->prepared->columns(); }
  unsigned rows() const noexcept { return task->prepared->rows(); }
};

// Distance of two shards in staging memory: aligned for every element.
inline std::uint64_t pitch_of(std::uint64_t length_bytes) { return (length_bytes + 63) / 64 * 64; }

// A range of each shard, under way in a slot.
struct DevicePiece {
  const HostTask *of = nullptr;
  KernelRange range;
  std::uint64_t offset_bytes = 0, length_bytes = 0;  // begin in the task, or in the first of several
  std::uint64_t check_bytes = 0;                     // of each shard, from there on
  // A compare that finds nothing proves nothing. So the staged copies of the outputs get a wrong byte each, and the
  // piece's result is that of the CPU.
  bool is_trial = false;

  std::uint64_t pitch_bytes() const noexcept { return pitch_of(length_bytes); }
  std::uint64_t input_bytes() const noexcept { return pitch_bytes() * of->columns(); }
  std::uint64_t output_bytes() const noexcept { return pitch_bytes() * of->rows(); }
  // In staging memory: none if the device uses all shards directly.
  std::uint64_t host_input_bytes() const noexcept { return is_all(of->input_is_direct) ? 0 : input_bytes(); }
  std::uint64_t host_output_bytes() const noexcept { return is_all(of->output_is_direct) ? 0 : output_bytes(); }
  std::uint64_t record_bytes() const noexcept { return of->compares() ? range.record_bytes(of->rows()) : 0; }

 private:
  static bool is_all(const std::vector<bool> &flags) {
    return std::find(flags.begin(), flags.end(), false) == flags.end();
  }
};

// Bytes of one shard in a piece of staging_bytes, if a piece's inputs and outputs have a buffer each: a multiple of 64.
// Throws Error (OUT_OF_MEMORY) if the budget does not hold one such line of each shard.
std::uint64_t most_piece_bytes(const Workplace &place, const core::Task &task, const KernelTuning &tuning,
                               std::uint64_t staging_bytes, unsigned pieces_at_once);

// Runs tasks that have rows, columns and bytes. Consecutive small tasks are uploaded, computed and downloaded together
// if they have one matrix and mode and do not compare. Outputs are written when their piece is complete. For accumulate
// the host does the XOR then, so a failed piece has changed nothing. One exception, for assign alone: outputs that the
// device writes directly, without a guard.
void run_staged(const Workplace &place, std::span<const core::Task> tasks, core::Control &control);

}  // namespace tandem::device
