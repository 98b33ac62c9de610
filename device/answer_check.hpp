// SPDX-License-Identifier: Apache-2.0
// Compares answers of a device with the CPU: the first one of each kernel, or every one (TANDEM_CHECK_DEVICES=all). If
// an answer is wrong, its backend does not use the device any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/budget.hpp"
#include "device/kernel_chooser.hpp"

namespace tandem::device {

// Shards of a launch in memory of the host, from its first byte on.
struct Answer {
  const DevicePrepared &of;
  std::uint64_t bytes;  // of each shard
  std::vector<const std::byte *> inputs = {};
  std::vector<std::byte *> outputs = {};  // written, or compared; of accumulate what was added
  // A compare: the device's result for the whole launch, from its first byte on.
  std::span<const core::Mismatch> found = {};
  std::uint64_t launch_bytes = 0;
};

// Thread-safe.
class AnswerCheck {
 public:
  static constexpr std::uint64_t kBytes = 64 << 10;  // of inputs and outputs together, of a first answer

  // The device outlives the check.
  AnswerCheck(const Options &options, const Device &device, const base::Log &log)
      : cpu_(options.reference), all_(options.checks_all), resources_(options.resources), device_(device), log_(log) {}

  bool is_of_all() const noexcept { return all_ && cpu_ != nullptr; }

  // Bytes of each shard of a first answer.
  static std::uint64_t first_bytes(const core::Prepared &of, std::uint64_t length_bytes) noexcept;

  // Bytes of each shard that look() should see of the next launch: 0 if this kernel has been checked. Autotune checks
  // its kernels itself.
  std::uint64_t wanted_bytes(const DevicePrepared &of, const Variant &variant, std::uint64_t length_bytes) const;

  // Throws Error (DEVICE) if the device computed something else than the CPU. Holds one "cpu" meanwhile.
  void look(const Answer &answer, const Variant &variant);

  // The same for copies of shards in device memory: inputs, outputs, and of accumulate the outputs before. found: of a
  // compare, for launch_bytes.
  static std::uint64_t copy_count(const core::Task &task) noexcept {
    return std::uint64_t{task.prepared->columns()} +
           std::uint64_t{task.prepared->rows()} * (task.mode == core::Mode::accumulate ? 2 : 1);
  }
  void look_at_copies(const core::Task &task, const Variant &variant, std::byte *copies, std::uint64_t bytes,
                      std::span<const core::Mismatch> found, std::uint64_t launch_bytes);

  // Shards that hardly match: a compare of these shows that the kernel sees differences.
  static std::vector<std::byte> shards_of_trial(const core::Prepared &of, std::uint64_t bytes);

  // The CPU's result of a compare of these shards: a record for each output, from the first byte on.
  std::vector<core::Mismatch> compare(const Answer &answer) const;

  void require_trust() const;  // throws Error (DEVICE) after a wrong answer

 private:
  std::vector<core::Mismatch> compare(const core::Matrix &matrix, const Answer &answer, std::uint64_t first_bytes,
                                      std::uint64_t bytes) const;
  std::vector<core::Mismatch> combine(const Answer &answer) const;
  std::uint64_t first_fault(const Answer &answer) const;

  const std::shared_ptr<core::Backend> cpu_;  // null: nothing is checked
  const bool all_;
  core::Budget *const resources_;
  const Device &device_;
  const base::Log log_;
  std::atomic<bool> is_out_{false};
  mutable std::mutex mutex_;  // of the next
  std::string why_out_;
};

}  // namespace tandem::device
