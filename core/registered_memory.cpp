// SPDX-License-Identifier: Apache-2.0
#include "core/registered_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"
#include "base/text.hpp"

namespace tandem::core {

struct RegisteredRange {
  RegisteredRange(std::uintptr_t first, std::uint64_t length) : begin(first), bytes(length) {}

  const std::uintptr_t begin;
  const std::uint64_t bytes;
  std::atomic<std::uint32_t> hold_count{0};  // raised only under the registry's lock
  std::mutex pins_mutex;
  std::vector<std::pair<const void *, std::shared_ptr<const void>>> pins;  // by driver; null: it refused
};

namespace {

using Ranges = std::map<std::uintptr_t, std::shared_ptr<RegisteredRange>>;  // by begin; disjoint

struct Registry {
  std::mutex mutex;
  Ranges ranges;
};

// Never destroyed: at the end of the process a driver, and its pins, may no longer exist.
base::ForkLocal<Registry> &all() {
  static auto &registry = *new base::ForkLocal<Registry>;
  return registry;
}

// The first range that ends behind `address`.
Ranges::const_iterator first_behind(const Ranges &ranges, std::uintptr_t address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return next;
  const auto last = std::prev(next);
  return address - last->first < last->second->bytes ? last : next;
}

// The range that holds all of it, or null. The caller has the lock.
std::shared_ptr<RegisteredRange> range_of(const Ranges &ranges, std::uintptr_t begin, std::uint64_t bytes) {
  const auto found = first_behind(ranges, begin);
  if (found == ranges.end() || found->first > begin) return nullptr;
  return bytes <= found->second->bytes - (begin - found->first) ? found->second : nullptr;
}

std::uintptr_t address_of(const void *memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

void register_memory(const void *memory, std::uint64_t bytes) {
  if (memory == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "memory is NULL");
  if (bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "bytes is 0");
  const std::uintptr_t begin = address_of(memory);
  if (bytes > UINTPTR_MAX - begin)
    base::fail(TANDEM_ERROR_TOO_LARGE, bytes, " bytes at ", "0x", base::digits(begin, 16),
               " do not fit the address space");
  Registry &registry = all().get();
  auto range = std::make_shared<RegisteredRange>(begin, bytes);
  const std::lock_guard lock(registry.mutex);
  const auto next = first_behind(registry.ranges, begin);
  if (next != registry.ranges.end() && next->first < begin + bytes) {
    const RegisteredRange &other = *next->second;
    if (other.begin == begin && other.bytes == bytes) {
      base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the ", bytes, " bytes at ", "0x", base::digits(begin, 16),
                 " are registered already");
    }
    base::fail(TANDEM_ERROR_OVERLAP, bytes, " bytes at ", "0x", base::digits(begin, 16), " overlap the ", other.bytes,
               " bytes at ", "0x", base::digits(other.begin, 16), ", which are registered");
  }
  registry.ranges.emplace(begin, std::move(range));
  detail::registered_count.fetch_add(1, std::memory_order_relaxed);
}

bool unregister_if_registered(const void *memory) {
  if (!is_any_memory_registered()) return false;
  std::shared_ptr<RegisteredRange> gone;  // destroyed without the lock, because a driver may take long
  Registry *const registry = all().get_if_made();
  if (registry == nullptr) return false;
  const std::lock_guard lock(registry->mutex);
  const auto found = registry->ranges.find(address_of(memory));
  if (found == registry->ranges.end()) return false;
  if (const std::uint32_t holds = found->second->hold_count.load(std::memory_order_acquire); holds != 0) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, holds, " ", holds == 1 ? "run uses" : "runs use", " the ",
               found->second->bytes, " registered bytes at ", "0x", base::digits(found->first, 16),
               ": unregister them when ", holds == 1 ? "it is" : "they are", " over");
  }
  gone = std::move(found->second);
  registry->ranges.erase(found);
  detail::registered_count.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void unregister_memory(const void *memory) {
  if (memory == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "memory is NULL");
  if (unregister_if_registered(memory)) return;
  const bool is_child = base::fork_generation() != base::kFirstForkGeneration;
  base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "no registered memory begins at ", "0x",
             base::digits(address_of(memory), 16),
             is_child ? "; this process was forked, and registrations do not survive a fork" : "");
}

bool is_registered(const void *memory, std::uint64_t bytes) noexcept {
  if (!is_any_memory_registered()) return false;
  Registry *const registry = all().get_if_made();
  if (registry == nullptr) return false;
  const std::lock_guard lock(registry->mutex);
  return range_of(registry->ranges, address_of(memory), bytes) != nullptr;
}

void MemoryHold::take(std::span<const Task> tasks) {
  Registry *const registry = all().get_if_made();
  if (registry == nullptr) return;
  std::vector<std::shared_ptr<RegisteredRange>> touched;
  const std::lock_guard lock(registry->mutex);
  const auto touch = [&](const std::byte *shard, const Task &task) {
    const std::uintptr_t begin = address_of(shard) + task.offset_bytes;
    auto each = first_behind(registry->ranges, begin);
    for (; each != registry->ranges.end() && (each->first <= begin || each->first - begin < task.length_bytes); ++each)
      touched.push_back(each->second);
  };
  for (const Task &task : tasks) {
    if (task.memory != MemoryKind::host || task.length_bytes == 0) continue;
    for (unsigned c = 0; c < task.prepared->columns(); ++c) touch(task.inputs[c], task);
    for (unsigned r = 0; r < task.prepared->rows(); ++r) touch(task.outputs[r], task);
  }
  std::ranges::sort(touched);
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  held_ = std::move(touched);
  for (const auto &range : held_) range->hold_count.fetch_add(1, std::memory_order_relaxed);
}

void MemoryHold::release() noexcept {
  for (const auto &range : held_) range->hold_count.fetch_sub(1, std::memory_order_release);
  held_.clear();
}

void pin_registered(const void *memory, std::uint64_t bytes, const void *driver, const MakePin &make) {
  if (!is_any_memory_registered()) return;
  Registry *const registry = all().get_if_made();
  if (registry == nullptr) return;
  struct Held {
    std::shared_ptr<RegisteredRange> range;
    ~Held() {
      if (range != nullptr) range->hold_count.fetch_sub(1, std::memory_order_release);
    }
  } held;
  {
    const std::lock_guard lock(registry->mutex);
    held.range = range_of(registry->ranges, address_of(memory), bytes);
    if (held.range == nullptr) return;
    held.range->hold_count.fetch_add(1, std::memory_order_relaxed);
  }
  RegisteredRange &range = *held.range;
  const std::lock_guard lock(range.pins_mutex);
  const auto is_of_driver = [&](const auto &each) { return each.first == driver; };
  if (std::ranges::any_of(range.pins, is_of_driver)) return;
  range.pins.reserve(range.pins.size() + 1);  // what is pinned is kept
  range.pins.emplace_back(driver, make(reinterpret_cast<void *>(range.begin), range.bytes));
}

}  // namespace tandem::core
