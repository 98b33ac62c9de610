// SPDX-License-Identifier: Apache-2.0
#include "base/fork.hpp"

#include <pthread.h>
#include <time.h>

namespace tandem::base {
namespace {

constexpr int kMostWaits = 3000;  // of a millisecond each

std::atomic<unsigned> pauses{0};          // of all threads, now
std::atomic<unsigned> forks{0};           // forks that run now
std::atomic<bool> waited_in_vain{false};  // for the pauses that exist now
thread_local unsigned own_pauses = 0;

void wait_a_little() noexcept {
  const timespec millisecond = {0, 1'000'000};
  nanosleep(&millisecond, nullptr);
}

extern "C" void tandem_before_fork() {
  int cancellation = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);  // a thread may be cancelled while it sleeps
  forks.fetch_add(1);
  for (int i = 0; pauses.load() > own_pauses && !waited_in_vain.load(); ++i) {
    if (i == kMostWaits) waited_in_vain.store(true);
    wait_a_little();
  }
  pthread_setcancelstate(cancellation, nullptr);
}

extern "C" void tandem_in_forking_parent() { forks.fetch_sub(1); }

extern "C" void tandem_in_forked_child() {
  detail::fork_generation_now.fetch_add(1, std::memory_order_relaxed);
  forks.store(0);
  pauses.store(own_pauses);  // the other threads do not exist in the child
  waited_in_vain.store(false);
}

}  // namespace

std::atomic<std::uint32_t> detail::fork_generation_now{0};

std::uint32_t detail::first_fork_generation() noexcept {
  // No lock and no once-flag: a fork in the middle would leave it locked in the child. If two threads get here
  // together, both register. A child then counts by two, which does no harm.
  if (pthread_atfork(tandem_before_fork, tandem_in_forking_parent, tandem_in_forked_child) != 0)
    return kFirstForkGeneration;  // the next call tries again
  std::uint32_t unregistered = 0;
  fork_generation_now.compare_exchange_strong(unregistered, kFirstForkGeneration, std::memory_order_relaxed);
  return fork_generation_now.load(std::memory_order_relaxed);
}

// Either a fork sees the pause, or the pause sees the fork.
ForkPause::ForkPause() noexcept {
  fork_generation();  // registers the handlers
  for (int i = 0; own_pauses == 0 && i < kMostWaits; ++i) {
    pauses.fetch_add(1);
    if (forks.load() == 0) break;
    pauses.fetch_sub(1);
    wait_a_little();
    if (i + 1 == kMostWaits) pauses.fetch_add(1);
  }
  if (own_pauses != 0) pauses.fetch_add(1);
  ++own_pauses;
}

ForkPause::~ForkPause() {
  --own_pauses;
  if (pauses.fetch_sub(1) == 1) waited_in_vain.store(false);
}

}  // namespace tandem::base
