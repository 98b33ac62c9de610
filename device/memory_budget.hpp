// SPDX-License-Identifier: Apache-2.0
// The bytes that all buffers on a device may have together, over all sessions of a backend. Not counted: host memory,
// and buffers of the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace tandem::device {

class MemoryBudget;

// A reserved part of the budget; empty when it was refused.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation &&other) noexcept { *this = std::move(other); }
  Reservation &operator=(Reservation &&other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation() { release(); }
  explicit operator bool() const noexcept { return budget_ != nullptr; }
  void release() noexcept;

 private:
  friend class MemoryBudget;
  Reservation(std::shared_ptr<MemoryBudget> budget, std::uint64_t bytes) : budget_(std::move(budget)), bytes_(bytes) {}

  std::shared_ptr<MemoryBudget> budget_;
  std::uint64_t bytes_ = 0;
};

// A holder of idle memory.
class MemoryHolder {
 public:
  virtual void give_idle_memory() noexcept = 0;

 protected:
  ~MemoryHolder() = default;
};

class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  explicit MemoryBudget(std::uint64_t bytes) : bytes_(bytes) {}

  // Before a run: a lane that keeps more than a lower budget would leave the run no room beside its own memory.
  void set(std::uint64_t bytes);
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  // Empty if so many bytes are not left, even after all holders gave back their idle memory.
  Reservation try_reserve(std::uint64_t bytes);

  // Makes all holders give back idle memory: the device may have less left than the budget.
  void give_idle_memory();

  void add(MemoryHolder *holder);
  void remove(MemoryHolder *holder) noexcept;

 private:
  friend class Reservation;
  bool take(std::uint64_t bytes) noexcept;

  std::atomic<std::uint64_t> bytes_;
  std::atomic<std::uint64_t> used_{0};
  std::mutex mutex_;
  std::list<MemoryHolder *> holders_;
};

}  // namespace tandem::device
