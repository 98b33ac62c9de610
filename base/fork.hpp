// State that survives fork(). A child has one thread; locks that other threads of the parent held stay locked for
// ever, pools have no workers, caches may be half-written. So everything guarded by a lock lives in a
// ForkLocal: the first use in a child finds that its value belongs to another process and makes a fresh one. The
// parent's value is left alone (leaked in the child): nothing in it can be trusted, not even for destruction.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::base {

namespace detail {
extern std::atomic<std::uint32_t> fork_generation_now;  // 0 until the fork handler is registered
std::uint32_t first_fork_generation() noexcept;         // registers it
}  // namespace detail

// What fork_generation() says in a process that has not been forked since it first asked.
inline constexpr std::uint32_t kFirstForkGeneration = 1;

// Another number in each child that is forked (pthread_atfork; registered by the first call, so before the first
// ForkLocal has a value). Never 0. One relaxed load: it is on the path of every small call. Children made without the
// handlers (vfork, a bare clone) must exec.
inline std::uint32_t fork_generation() noexcept {
  const std::uint32_t generation = detail::fork_generation_now.load(std::memory_order_relaxed);
  return generation != 0 ? generation : detail::first_fork_generation();
}

// While one exists, fork() in another thread waits: for what must not be cut off in the middle, such as loading a
// driver, which would leave the child with the loader's lock held for ever. The thread itself may fork (drivers do). A
// fork waits for three seconds at most, and after that not again until all pauses are over: what hangs must not hold up
// every fork.
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

  // This process' value, default-constructed by its first use here.
  T &get() {
    const std::uint32_t generation = fork_generation();
    Node *node = node_.load(std::memory_order_acquire);
    if (node != nullptr && node->generation == generation) return node->value;
    return replace(node, generation);
  }

  // The value if this process has one already.
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
