// SPDX-License-Identifier: Apache-2.0
// The bytes that all buffers on a device may have together, over all sessions of a backend. Not counted: host memory,
// and buffers of the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace tandem::device {

class DeviceSession;

// A reserved part of the budget, given back by the destructor; null when it was refused.
using Reservation = std::shared_ptr<const void>;

class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  explicit MemoryBudget(std::uint64_t bytes) : bytes_(bytes) {}

  // Before a run: a lane that keeps more than a lower budget would leave the run no room beside its own memory.
  void set(std::uint64_t bytes);
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  // Null if the budget has less than `bytes` left, even after all sessions gave back their idle memory.
  Reservation try_reserve(std::uint64_t bytes);

  // Makes all sessions give back idle memory: the device may have less left than the budget.
  void give_idle_memory();

  void add(DeviceSession *session);
  void remove(DeviceSession *session) noexcept;

 private:
  bool take(std::uint64_t bytes) noexcept;

  std::atomic<std::uint64_t> bytes_;
  std::atomic<std::uint64_t> used_{0};
  std::mutex mutex_;
  std::list<DeviceSession *> sessions_;
};

}  // namespace tandem::device
