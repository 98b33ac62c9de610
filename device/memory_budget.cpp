// SPDX-License-Identifier: Apache-2.0
#include "device/memory_budget.hpp"

namespace tandem::device {

void Reservation::release() noexcept {
  if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_);
  budget_.reset();
  bytes_ = 0;
}

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
  return {shared_from_this(), bytes};
}

void MemoryBudget::give_idle_memory() {
  const std::lock_guard lock(mutex_);
  for (MemoryHolder *holder : holders_) holder->give_idle_memory();
}

void MemoryBudget::add(MemoryHolder *holder) {
  const std::lock_guard lock(mutex_);
  holders_.push_back(holder);
}

void MemoryBudget::remove(MemoryHolder *holder) noexcept {
  const std::lock_guard lock(mutex_);
  holders_.remove(holder);
}

}  // namespace tandem::device
