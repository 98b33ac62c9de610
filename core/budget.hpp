// SPDX-License-Identifier: Apache-2.0
// The resources budget: how much of each named, purely logical resource the tasks of a context may hold at once. A task
// takes all its needs before it starts, and gives them back when it is done. Amounts may change while tasks run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::core {

struct Need {
  unsigned resource;  // Budget::index
  std::uint64_t amount;
};

// Thread-safe. Holds are counted per process: a forked child holds nothing. A list of needs names each resource once.
// The caller keeps the list alive and unchanged while the needs are held.
class Budget {
 public:
  // These names have a built-in meaning, and so have "opencl_mib" and "cuda_mib". A program's own names have a dot:
  // tasks of any kind may need them, and they are counted in the same way.
  static constexpr unsigned kCpu = 0;        // "cpu": a task of the CPU holds one
  static constexpr unsigned kGpu = 1;        // "gpu": a task of a device holds one
  static constexpr unsigned kPinnedMib = 2;  // "pinned_mib": MiB of staging memory, of a hybrid
  static constexpr unsigned kBuiltInCount = 5;
  static constexpr std::size_t kMostNameBytes = 63;
  static constexpr unsigned kMostOvertaken = 16;

  Budget();
  ~Budget();
  Budget(const Budget &) = delete;
  Budget &operator=(const Budget &) = delete;

  // The number of a name, for the life of this budget; a new name has no amount. Throws Error (INVALID_ARGUMENT) for a
  // name that is not 1 to 63 of A-Z a-z 0-9 _ . - and for one that is neither built in nor has a dot.
  unsigned index(std::string_view name);
  const std::string &name(unsigned resource) const noexcept;

  // Amounts such as "cpu=5,my.disks=2". Throws Error (INVALID_ARGUMENT) as index does, and for an amount that is
  // zero, malformed or given twice. It has then changed nothing. "" changes nothing.
  void set_all(const std::string &amounts);

  // Sets one amount. Effective at once for waiting threads, and within one chunk for those that hold some.
  void set(const std::string &name, std::uint64_t amount);

  std::uint64_t amount(unsigned resource) const noexcept;  // UINT64_MAX when not set

  // Whether any amount was ever set. Until then a Hold counts nothing.
  bool is_limited() const noexcept { return is_limited_.load(std::memory_order_relaxed); }

  // Reads a text such as "my.disks=2". Throws Error (INVALID_ARGUMENT) as set_all does.
  std::vector<Need> needs_of(const std::string &text);

  // Throws Error (INVALID_ARGUMENT) with the numbers if a need is beyond the whole amount.
  void check(std::span<const Need> needs) const;

  // Takes all needs or none of them. Blocks, without spinning, until it has them. First come, first served, with one
  // exception: a later task that fits may pass a waiting one that needs some of the same, at most kMostOvertaken times.
  // Throws Error as check does, also if an amount falls below a need during the wait; std::bad_alloc. A thread that
  // holds some of these must not call it: it could wait for itself. One need takes no lock while no thread waits.
  // in_front: before all waiting threads. That is for a thread that holds other resources, which some of those may wait
  // for.
  void acquire(std::span<const Need> needs, bool in_front = false);
  bool try_acquire(std::span<const Need> needs) noexcept;  // does not wait; if it fails, it has taken nothing
  void release(std::span<const Need> needs) noexcept;
  std::uint64_t waiting_count() noexcept;  // threads of this process that wait now: for tests

  // For a thread between two tasks that holds the needs. true: continue with them. false: they were given back, because
  // an amount was lowered or because others have waited for a turn.
  bool keep(std::span<const Need> needs) noexcept;

 private:
  struct State;
  std::atomic<bool> is_limited_{false};
  std::unique_ptr<State> state_;
};

// The needs of one thread's tasks, one task after the other. Until an amount is set it counts nothing, and costs one
// relaxed load for each task.
class Hold {
 public:
  // null: no budget. in_front: as acquire.
  Hold(Budget *budget, std::span<const Need> needs, bool in_front = false) noexcept
      : budget_(budget), needs_(needs), is_in_front_(in_front) {}
  ~Hold() {
    if (is_held_) budget_->release(needs_);
  }
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;

  // Call it before each task. May block. Throws as Budget::acquire does, and then holds nothing.
  void next_task() {
    if (budget_ == nullptr || (is_held_ ? budget_->keep(needs_) : !budget_->is_limited())) return;
    is_held_ = false;
    budget_->acquire(needs_, is_in_front_);
    is_held_ = true;
  }

  // The same for threads that must not wait. False: call next_task() first.
  bool keep() noexcept {
    if (is_held_) is_held_ = budget_->keep(needs_);
    return is_held_ || budget_ == nullptr || !budget_->is_limited();
  }

 private:
  Budget *budget_;
  std::span<const Need> needs_;
  const bool is_in_front_;
  bool is_held_ = false;
};

// The needs of one task of a run: one unit of its kind, plus the needs of the run.
class TaskNeeds {
 public:
  TaskNeeds(unsigned kind, std::span<const Need> added) : unit_{kind, 1} {
    if (added.empty()) return;
    all_.reserve(1 + added.size());
    all_.push_back(unit_);
    all_.insert(all_.end(), added.begin(), added.end());
  }
  TaskNeeds(const TaskNeeds &) = delete;
  TaskNeeds &operator=(const TaskNeeds &) = delete;

  std::span<const Need> get() const noexcept { return all_.empty() ? std::span(&unit_, 1) : std::span(all_); }

 private:
  const Need unit_;
  std::vector<Need> all_;
};

}  // namespace tandem::core
