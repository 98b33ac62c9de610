// SPDX-License-Identifier: Apache-2.0
// Devices that come to an end soon, and devices that may never do so.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <new>

namespace tandem::device {

// A wait polls so long before it sleeps, because a sleep and a wake-up take as long.
inline constexpr std::chrono::microseconds kLook(50);

// Whether is_done() is true within kLook. It is called at least once.
template <class IsDone>
bool is_done_soon(const IsDone &is_done) {
  const auto end = std::chrono::steady_clock::now() + kLook;
  do {
    if (is_done()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Keeps memory that a device may still write to, for ever. Leak checkers find it.
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
