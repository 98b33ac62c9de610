// SPDX-License-Identifier: Apache-2.0
#include "base/fork.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

#include "base/log.hpp"
#include "tests/cpu/executor_kit.hpp"

namespace tandem::test {
namespace {

using core::Control;

// Forks; the child's status is body()'s result. -1: it had to be killed.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == -1) return -2;
  if (child == 0) _exit(body());
  int status = 0;
  for (int waited = 0; waited < 20000; ++waited) {
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return -1;
}

TEST(Fork, EachChildHasAnotherGeneration) {
  const std::uint32_t here = base::fork_generation();
  EXPECT_NE(here, 0u);
  EXPECT_EQ(in_child([&] {
              const std::uint32_t child = base::fork_generation();
              const int grandchild = in_child([&] { return base::fork_generation() != child ? 0 : 1; });
              return child != here && child != 0 && grandchild == 0 ? 0 : 1;
            }),
            0);
  EXPECT_EQ(base::fork_generation(), here);
}

struct Guarded {
  std::mutex mutex;
  int value = 1;
};

TEST(Fork, ALockHeldByAnotherThreadIsFreshInTheChild) {
  base::ForkLocal<Guarded> local;
  std::atomic<bool> locked{false};
  std::atomic<bool> done{false};
  std::thread holder([&] {
    const std::lock_guard lock(local.get().mutex);
    local.get().value = 2;
    locked = true;
    while (!done.load()) std::this_thread::yield();
  });
  while (!locked.load()) std::this_thread::yield();
  EXPECT_EQ(in_child([&] {
              if (local.get_if_made() != nullptr) return 1;
              const std::lock_guard lock(local.get().mutex);
              return local.get().value == 1 && local.get_if_made() == &local.get() ? 0 : 2;
            }),
            0);
  done = true;
  holder.join();
  EXPECT_EQ(local.get().value, 2);
}

TEST(Fork, ALogIsMutedInAChildOfAParentThatIsSayingSomething) {
  struct Call {
    std::atomic<bool> began{false}, may_end{false};
  } call;
  const base::Log log(
      [](void *user, std::int32_t, const char *) {
        auto *const own = static_cast<Call *>(user);
        own->began = true;
        while (!own->may_end) std::this_thread::yield();
      },
      &call, TANDEM_LOG_DEBUG);
  std::thread other([&] { log.say(TANDEM_LOG_INFO, "a long one"); });
  while (!call.began) std::this_thread::yield();
  EXPECT_EQ(in_child([&] {
              log.mute();
              log.say(TANDEM_LOG_INFO, "no callback receives it");
              return 0;
            }),
            0);
  call.may_end = true;
  other.join();
}

TEST(Fork, WaitsForAPauseOfAnotherThread) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> paused{false}, over{false}, done{false};
    std::thread loader([&] {
      {
        const base::ForkPause pause;
        paused = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const base::ForkPause nested;
        over = true;
      }
      // The thread sanitizer takes one that has ended for a leak of the child's.
      while (!done.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    while (!paused.load()) std::this_thread::yield();
    EXPECT_EQ(in_child([&] { return over.load() ? 0 : 1; }), 0) << "forked in the middle of it";
    done = true;
    loader.join();
  }
}

TEST(Fork, TheThreadThatPausesMayForkAndItsChildToo) {
  const base::ForkPause pause;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(in_child([] {
              const base::ForkPause own;
              return in_child([] { return 0; });
            }),
            0);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5)) << "it waited for itself";
}

TEST(Fork, WhatNeverEndsHoldsUpOneForkAndNoOther) {
  std::atomic<bool> paused{false}, over{false};
  std::thread loader([&] {
    const base::ForkPause pause;
    paused = true;
    while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!paused.load()) std::this_thread::yield();
  EXPECT_EQ(in_child([] { return 0; }), 0);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(14)) << "three seconds for each";
  over = true;
  loader.join();
}

TEST(Fork, AForkLocalHasOneValueForAllThreads) {
  for (int round = 0; round < 200; ++round) {
    base::ForkLocal<Guarded> local;
    EXPECT_EQ(local.get_if_made(), nullptr);
    std::vector<Guarded *> seen(4);
    std::vector<std::thread> threads;
    for (auto &mine : seen) threads.emplace_back([&] { mine = &local.get(); });
    for (auto &thread : threads) thread.join();
    for (const auto *mine : seen) EXPECT_EQ(mine, seen[0]);
  }
}

TEST(Fork, UnitsOfTheParentsThreadsAreFreeInTheChild) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  core::Budget budget;
  budget.set("cpu", 2);
  budget.acquire(kOneCpu);
  budget.acquire(kOneCpu);
  std::thread waiter([&] {  // waits in the parent, is not there in the child
    budget.acquire(kOneCpu);
    budget.release(kOneCpu);
  });
  EXPECT_EQ(in_child([&] {
              if (budget.amount(core::Budget::kCpu) != 2) return 1;
              if (!budget.try_acquire(kOneCpu) || !budget.try_acquire(kOneCpu)) return 2;
              if (budget.try_acquire(kOneCpu)) return 3;
              budget.set("cpu", 3);
              return budget.try_acquire(kOneCpu) ? 0 : 4;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              budget.release(kOneCpu);  // a unit taken before the fork: not one of this process
              return budget.try_acquire(kOneCpu) && budget.try_acquire(kOneCpu) && !budget.try_acquire(kOneCpu) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(budget.amount(core::Budget::kCpu), 2u);
  budget.release(kOneCpu);
  waiter.join();
  budget.release(kOneCpu);
}

TEST(Fork, NamesOfResourcesAndTheirAmountsStayInTheChild) {
  core::Budget budget;
  budget.set_all("app.widgets=2,cpu=1");
  const unsigned widgets = budget.index("app.widgets");
  const core::Need needs[] = {{core::Budget::kCpu, 1}, {widgets, 2}};
  budget.acquire(needs);
  EXPECT_EQ(in_child([&] {
              if (budget.index("app.widgets") != widgets || budget.amount(widgets) != 2) return 1;
              if (budget.keep(needs)) return 2;  // held by the parent
              if (!budget.try_acquire(needs) || budget.try_acquire(needs)) return 3;
              budget.release(needs);
              return budget.index("app.more") == widgets + 1 && budget.try_acquire(needs) ? 0 : 4;
            }),
            0);
  EXPECT_FALSE(budget.try_acquire(needs));
  EXPECT_EQ(budget.index("app.other"), widgets + 1);
}

class ForkWhileCoding : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Executors, ForkWhileCoding, testing::Values(Kind::serial, Kind::pthread, Kind::openmp),
                         [](const auto &test) { return kind_name(test.param); });

bool runs_well(cpu::Executor &executor) {
  for (const std::size_t item_count : {1, 2, 40}) {
    CountingBatch batch(item_count);
    Control control;
    if (!executor.run(batch, item_count, control) || !batch.every_item_ran_once()) return false;
  }
  return true;
}

TEST_P(ForkWhileCoding, TheChildRunsOnTheSameExecutor) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  const std::string reason = why_not(GetParam());
  if (!reason.empty()) GTEST_SKIP() << reason;
  if (kThreadSanitizer && GetParam() == Kind::pthread) {
    GTEST_SKIP() << "NOT RUN: the thread sanitizer allows no new threads in the child of a process with several";
  }
  core::Budget budget;
  budget.set("cpu", 2);
  cpu::ExecutorOptions options;
  options.thread_count = 3;
  options.budget = &budget;
  auto executor = make(GetParam(), options);
  std::atomic<bool> over{false};
  std::atomic<int> begun{0};
  std::atomic<int> wrong{0};
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      CountingBatch batch(20, [](std::size_t) { work_for(std::chrono::microseconds(5)); });
      for (++begun; !over.load();) {
        batch.reset();
        Control control;
        if (!executor->run(batch, 20, control) || !batch.every_item_ran_once()) wrong.fetch_add(1);
        runs.fetch_add(1);
      }
    });
  }
  while (begun.load() < 2 || runs.load() < 10) std::this_thread::yield();

  for (int i = 0; i < 50; ++i) {
    const int before = runs.load();
    const int status = in_child([&] {
      const bool openmp = GetParam() == Kind::openmp;
      if (openmp && std::string(executor->name()) != "pthread") return 1;
      if (!runs_well(*executor)) return 2;
      if (!runs_well(*make(GetParam(), options))) return 3;  // made in the child
      if (i % 10 == 0 && !kThreadSanitizer) {
        std::thread other([&] { runs_well(*executor); });
        const bool good = runs_well(*executor);
        other.join();
        if (!good) return 4;
        if (in_child([&] { return runs_well(*executor) ? 0 : 1; }) != 0) return 5;
      }
      executor.reset();                                            // joins its own workers, not the parent's
      return thread_count_becomes(1) || kThreadSanitizer ? 0 : 6;  // it has a thread of its own
    });
    EXPECT_EQ(status, 0) << "fork " << i;
    if (status != 0) break;
    EXPECT_TRUE(eventually([&] { return runs.load() > before; })) << "the parent stopped coding";
  }
  over = true;
  for (auto &caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A child that never used the executor destroys it: there is no thread to join.
TEST_P(ForkWhileCoding, TheChildMayDestroyWithoutUsing) {
  TANDEM_SKIP_FORK_BESIDE_THREADS();
  const std::string reason = why_not(GetParam());
  if (!reason.empty()) GTEST_SKIP() << reason;
  cpu::ExecutorOptions options;
  options.thread_count = 4;
  auto executor = make(GetParam(), options);
  EXPECT_TRUE(runs_well(*executor));
  EXPECT_EQ(in_child([&] {
              executor.reset();
              return 0;
            }),
            0);
  EXPECT_TRUE(runs_well(*executor));
}

}  // namespace
}  // namespace tandem::test
