// SPDX-License-Identifier: Apache-2.0
#include "device/memory_budget.hpp"

#include "device/session.hpp"

namespace tandem::device {

void MemoryBudget::set(std::uint64_t bytes) {
  bytes_.store(bytes, std::memory_order_relaxed);
  if (used_.load() > bytes) give_idle_memory();
}

bool MemoryBudget::take(std::uint64_t bytes) noexcept {
  std::uint64_t used = used_.load();
  do {
    const std::uint64_t most = this->bytes();
    if (used > most || bytes > most - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

Reservation MemoryBudget::try_reserve(std::uint64_t bytes) {
  if (!take(bytes)) {
    give_idle_memory();
    if (!take(bytes)) return {};
  }
  return {&used_, [budget = shared_from_this(), bytes](std::atomic<std::uint64_t> *used) { used->fetch_sub(bytes); }};
}

void MemoryBudget::give_idle_memory() {
  const std::lock_guard lock(mutex_);
  for (DeviceSession *session : sessions_) session->give_idle_memory();
}

void MemoryBudget::add(DeviceSession *session) {
  const std::lock_guard lock(mutex_);
  sessions_.push_back(session);
}

void MemoryBudget::remove(DeviceSession *session) noexcept {
  const std::lock_guard lock(mutex_);
  sessions_.remove(session);
}

}  // namespace tandem::device
