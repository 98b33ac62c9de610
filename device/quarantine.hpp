// SPDX-License-Identifier: Apache-2.0
// Keeps memory that a device may still write to.
#pragma once

#include <atomic>
#include <memory>
#include <new>

namespace tandem::device {

// Keeps `what` for ever. Leak checkers find it.
template <class Object>
void quarantine(std::unique_ptr<Object> what) noexcept {
  struct Kept {
    Object *what;
    Kept *next;
  };
  static std::atomic<Kept *> first{nullptr};
  Object *const object = what.release();  // kept even if there is no memory to record it
  Kept *kept = new (std::nothrow) Kept{object, first.load()};
  while (kept != nullptr && !first.compare_exchange_weak(kept->next, kept)) {
  }
}

}  // namespace tandem::device
