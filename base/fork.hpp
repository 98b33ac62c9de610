// SPDX-License-Identifier: Apache-2.0
// State that survives fork(). A child has one thread. Locks that other threads of the parent held stay locked for ever,
// pools have no workers, caches may be half-written. So everything guarded by a lock lives in a ForkLocal. Its first
// use in a child finds that the value belongs to another process, and makes a fresh one. The parent's value leaks in
// the child: nothing in it can be trusted, not even its destructor.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::base {

namespace detail {
extern std::atomic<std::uint32_t> fork_generation_now;  // 0 until the fork handler is registered
std::uint32_t first_fork_generation() noexcept;         // registers it
}  // namespace detail

// The result of fork_generation() in a process that was not forked since its first call.
inline constexpr std::uint32_t kFirstForkGeneration = 1;

// A different number in each forked child. The first call registers a pthread_atfork handler, before the first
// ForkLocal has a value. Never 0. It costs one relaxed load, because every small call makes it. Children made without
// the handlers (vfork, a bare clone) must exec.
inline std::uint32_t fork_generation() noexcept {
  const std::uint32_t generation = detail::fork_generation_now.load(std::memory_order_relaxed);
  return generation != 0 ? generation : detail::first_fork_generation();
}

// While one exists, fork() in another thread waits. It protects work that a fork must not cut off, such as loading a
// driver: the child would inherit the loader's locked lock. The thread itself may fork (drivers do). A fork waits three
// seconds at most. After that, forks do not wait until all pauses are over: a hanging driver must not delay every fork.
class ForkPause {
 public:
  ForkPause() noexcept;
  ~ForkPause();
  ForkPause(const ForkPause &) = delete;
  ForkPause &operator=(const ForkPause &) = delete;
};

template <class T>
class ForkLocal {
 public:
  ForkLocal() = default;
  ~ForkLocal() {
    Node *node = node_.load(std::memory_order_acquire);
    if (node != nullptr && node->generation == fork_generation()) delete node;
  }
  ForkLocal(const ForkLocal &) = delete;
  ForkLocal &operator=(const ForkLocal &) = delete;

  // This process' value. Its first use here default-constructs it.
  T &get() {
    const std::uint32_t generation = fork_generation();
    Node *node = node_.load(std::memory_order_acquire);
    if (node != nullptr && node->generation == generation) return node->value;
    return replace(node, generation);
  }

  // The value, or null if this process has none yet.
  T *get_if_made() noexcept {
    Node *node = node_.load(std::memory_order_acquire);
    return node != nullptr && node->generation == fork_generation() ? &node->value : nullptr;
  }

 private:
  struct Node {
    std::uint32_t generation;
    T value;
  };

  T &replace(Node *seen, std::uint32_t generation) {
    Node *fresh = new Node{generation, {}};
    if (node_.compare_exchange_strong(seen, fresh, std::memory_order_acq_rel)) return fresh->value;
    delete fresh;  // another thread of this process was first
    return seen->value;
  }

  std::atomic<Node *> node_{nullptr};
};

}  // namespace tandem::base
