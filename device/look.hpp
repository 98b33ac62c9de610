// SPDX-License-Identifier: Apache-2.0
// Waits for a device: polls shortly before the sleep, because a sleep and a wake-up take some 50 microseconds.
#pragma once

#include <chrono>

namespace tandem::device {

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

}  // namespace tandem::device
