#include "core/fork.hpp"

#include <pthread.h>

namespace tandem::core::detail {

std::atomic<std::uint32_t> fork_generation_now{0};

namespace {
extern "C" void tandem_in_forked_child() { fork_generation_now.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

std::uint32_t first_fork_generation() noexcept {
  // No lock and no once-flag: a fork in the middle would leave it locked in the child. Two threads that get here
  // together register twice, and a child then counts by two, which is as good.
  if (pthread_atfork(nullptr, nullptr, tandem_in_forked_child) != 0)
    return kFirstForkGeneration;  // tried again next time
  std::uint32_t unregistered = 0;
  fork_generation_now.compare_exchange_strong(unregistered, kFirstForkGeneration, std::memory_order_relaxed);
  return fork_generation_now.load(std::memory_order_relaxed);
}

}  // namespace tandem::core::detail
