// SPDX-License-Identifier: Apache-2.0
// A pthread key made by its first use, for data that must outlive a thread's thread_local objects.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tandem::base {

// Static storage only. A static local pthread_key_t would not do: a fork while another thread makes it would leave its
// guard locked in the child for ever.
class ThreadKey {
 public:
  explicit constexpr ThreadKey(void (*destroy)(void *)) : destroy_(destroy) {}

  // False: the process has no key left.
  bool find(pthread_key_t *key) noexcept {
    std::uint64_t known = key_plus_one_.load(std::memory_order_acquire);
    if (known == 0) {
      pthread_key_t made;
      if (pthread_key_create(&made, destroy_) != 0) return false;
      if (key_plus_one_.compare_exchange_strong(known, std::uint64_t{made} + 1)) {
        known = std::uint64_t{made} + 1;
      } else {
        pthread_key_delete(made);
      }
    }
    *key = static_cast<pthread_key_t>(known - 1);
    return true;
  }

 private:
  void (*destroy_)(void *);
  std::atomic<std::uint64_t> key_plus_one_{0};
};

}  // namespace tandem::base
