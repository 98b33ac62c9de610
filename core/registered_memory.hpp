// SPDX-License-Identifier: Apache-2.0
// Host memory that the program has registered (tandem_memory_register), so that devices access it directly. The
// registrations belong to the process: a driver pins memory for all of its contexts. A child after fork has none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/backend.hpp"

namespace tandem::core {

struct RegisteredRange;

namespace detail {
// The number of ranges in this process. A child inherits the number, and then finds no range.
inline std::atomic<std::uint64_t> registered_count{0};
}  // namespace detail

inline bool is_any_memory_registered() noexcept {
  return detail::registered_count.load(std::memory_order_relaxed) != 0;
}

// Throws Error: INVALID_ARGUMENT (NULL, 0 bytes, registered before), TOO_LARGE, OVERLAP.
void register_memory(const void *memory, std::uint64_t bytes);

// Removes the range that begins at `memory`, and releases what drivers pinned of it. Throws Error (INVALID_ARGUMENT) if
// there is none, or while a hold is on it.
void unregister_memory(const void *memory);
// For memory that will be freed: false if no range begins there. Throws as the other.
bool unregister_if_registered(const void *memory);

// Whether all of it lies in one registered range.
bool is_registered(const void *memory, std::uint64_t bytes) noexcept;

// Prevents that the registered ranges of the tasks' host shards are unregistered. Costs one relaxed load if nothing is
// registered.
class MemoryHold {
 public:
  MemoryHold() = default;
  explicit MemoryHold(std::span<const Task> tasks) {
    if (is_any_memory_registered()) take(tasks);
  }
  MemoryHold(MemoryHold &&other) noexcept { held_.swap(other.held_); }
  MemoryHold &operator=(MemoryHold &&other) noexcept {
    held_.swap(other.held_);
    return *this;
  }
  ~MemoryHold() {
    if (!held_.empty()) release();
  }
  bool is_empty() const noexcept { return held_.empty(); }  // no registered range

 private:
  void take(std::span<const Task> tasks);
  void release() noexcept;

  std::vector<std::shared_ptr<RegisteredRange>> held_;
};

// Pins memory for a driver. The pin ends with the object. Null: this memory cannot be pinned, and is not tried again.
using MakePin = std::function<std::shared_ptr<const void>(void *memory, std::uint64_t bytes)>;

// Pins the registered range that contains all of `memory`, once for each `driver` (any address that names it). Does
// nothing for other memory. Throws the exceptions of `make`.
void pin_registered(const void *memory, std::uint64_t bytes, const void *driver, const MakePin &make);

}  // namespace tandem::core
