// SPDX-License-Identifier: Apache-2.0
// A process is forked while another thread builds the tables of GF(2^16). The child must have the tables too. The test
// stops the thread in the constructor: its first allocation waits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "core/gf16.hpp"

namespace {

std::atomic<bool> is_waiting{false}, may_go_on{false};
thread_local bool waits_in_allocation = false;

}  // namespace

// Out of line: GCC takes an inlined free for the wrong partner of an operator new that it did not inline.
[[gnu::noinline]] static void release(void *memory) { std::free(memory); }

void *operator new(std::size_t bytes) {
  if (waits_in_allocation) {
    is_waiting = true;
    while (!may_go_on.load()) std::this_thread::yield();
    waits_in_allocation = false;
  }
  void *const memory = std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void *memory) noexcept { release(memory); }
void operator delete(void *memory, std::size_t) noexcept { release(memory); }

namespace tandem::core::gf16 {
namespace {

constexpr unsigned kLimitSeconds = 60;

// is_right: of a field's tables; runs in the child.
void fork_during_first_use(const Field &(*field)(), bool (*is_right)(const Field &)) {
  is_waiting = may_go_on = false;
  const Field *built = nullptr;
  std::thread builder([&] {
    waits_in_allocation = true;
    built = &field();
  });
  while (!is_waiting.load()) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitSeconds);
    _exit(is_right(field()) ? 0 : 1);
  }
  may_go_on = true;
  builder.join();
  ASSERT_NE(child, -1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << ": the child hung";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child's field was wrong";
  EXPECT_TRUE(is_right(*built));
  EXPECT_EQ(&field(), built);
}

TEST(Gf16Field, AChildThatIsForkedDuringTheFirstUseHasItsOwn) {
  // (x + 1)(x^2 + x + 1) = x^3 + 1 needs no reduction, x^15 * x does.
  fork_during_first_use(&Field::words, [](const Field &field) {
    return field.multiply(3, 7) == 9 && field.multiply(1u << 15, 2) == 0x100b;
  });
  // The Cantor basis: b_1^2 + b_1 = b_0.
  fork_during_first_use(&Field::cantor, [](const Field &field) {
    return (field.multiply(2, 2) ^ 2) == 1 && field.multiply(0x1234, field.inverse(0x1234)) == 1;
  });
}

}  // namespace
}  // namespace tandem::core::gf16
