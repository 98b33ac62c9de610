// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <set>

#include "base/affinity.hpp"
#include "base/own_folder.hpp"
#include "cpu/cores.hpp"
#include "cpu/executors/openmp_module.hpp"
#include "cpu/factory.hpp"
#include "tests/base/errors.hpp"
#include "tests/cpu/executor_kit.hpp"

namespace tandem::test {
namespace {

using core::Control;
using cpu::ExecutorOptions;

class EveryExecutor : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::string reason = why_not(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  std::unique_ptr<cpu::Executor> executor(unsigned thread_count, core::Budget *budget = nullptr) {
    ExecutorOptions options;
    options.thread_count = thread_count;
    options.budget = budget;
    return make(GetParam(), options);
  }
};

INSTANTIATE_TEST_SUITE_P(Executors, EveryExecutor, testing::Values(Kind::serial, Kind::pthread, Kind::openmp),
                         [](const auto &test) { return kind_name(test.param); });

TEST_P(EveryExecutor, RunsEveryItemOnce) {
  for (const unsigned thread_count : {1u, 2u, 3u, 7u, 16u}) {
    const auto executor = this->executor(thread_count);
    EXPECT_EQ(executor->thread_count(), GetParam() == Kind::serial ? 1 : thread_count);
    for (const std::size_t item_count : {0, 1, 2, 3, 5, 15, 16, 17, 100, 1000, 10007}) {
      CountingBatch batch(item_count);
      Control control;
      EXPECT_TRUE(executor->run(batch, item_count, control));
      EXPECT_TRUE(batch.every_item_ran_once()) << item_count << " items on " << thread_count << " threads";
    }
  }
}

// Counts the threads that are inside at once.
class CrowdedBatch final : public cpu::Batch {
 public:
  void run_item(std::size_t) noexcept override {
    const unsigned now = ++inside_;
    unsigned seen = most_;
    while (now > seen && !most_.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    --inside_;
    ++ran_count_;
  }
  unsigned most() const { return most_; }
  std::size_t ran_count() const { return ran_count_; }

 private:
  std::atomic<unsigned> inside_{0}, most_{0};
  std::atomic<std::size_t> ran_count_{0};
};

TEST_P(EveryExecutor, KeepsToTheThreadsOfOneRun) {
  const auto executor = this->executor(6);
  for (const unsigned most : {1u, 2u, 3u, 6u, 100u}) {
    for (unsigned i = 0; i < 5; ++i) {
      CrowdedBatch batch;
      Control control;
      EXPECT_TRUE(executor->run(batch, 40, control, most));
      EXPECT_EQ(batch.ran_count(), 40u);
      EXPECT_LE(batch.most(), most);
    }
  }
}

TEST_P(EveryExecutor, NamesItself) { EXPECT_EQ(executor(2)->name(), kind_name(GetParam())); }

TEST_P(EveryExecutor, RefusesZeroThreads) {
  const std::string message = refusal(TANDEM_ERROR_INVALID_ARGUMENT, [this] { executor(0); });
  EXPECT_NE(message.find("thread_count 0"), std::string::npos) << message;
}

// A batch is gone as soon as its run is over: the address sanitizer and the poisoned memory both see a late access.
TEST_P(EveryExecutor, LeavesTheBatchAloneAfterwards) {
  const auto executor = this->executor(4);
  for (int i = 0; i < 2000; ++i) {
    auto batch = std::make_unique<CountingBatch>(5);
    auto control = std::make_unique<Control>();
    ASSERT_TRUE(executor->run(*batch, 5, *control));
    ASSERT_EQ(batch->running(), 0);
    ASSERT_TRUE(batch->every_item_ran_once());
  }
}

// The last item is held back by a worker (or by the caller, where there is no worker): run() must wait for it.
TEST_P(EveryExecutor, WaitsForTheLastItem) {
  const auto executor = this->executor(3);
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> finished{0};
    CountingBatch batch(12, [&](std::size_t) {
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      finished.fetch_add(1);
    });
    Control control;
    ASSERT_TRUE(executor->run(batch, 12, control));
    ASSERT_EQ(finished.load(), 12);
  }
}

TEST_P(EveryExecutor, ServesSeveralCallersAtOnce) {
  const auto executor = this->executor(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 60; ++i) {
        const std::size_t item_count = static_cast<std::size_t>(1 + (i * 7 + caller * 13) % 50);
        CountingBatch batch(item_count);
        Control control;
        if (!executor->run(batch, item_count, control) || !batch.every_item_ran_once()) wrong.fetch_add(1);
      }
    });
  }
  for (auto &caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(EveryExecutor, RunsNothingWhenCancelledBefore) {
  const auto executor = this->executor(3);
  CountingBatch batch(100);
  Control control;
  control.cancel();
  EXPECT_FALSE(executor->run(batch, 100, control));
  EXPECT_EQ(batch.items_that_ran(0), 100u);
}

TEST_P(EveryExecutor, StopsAfterACancelFromAnItem) {
  for (const unsigned thread_count : {1u, 4u}) {
    const auto executor = this->executor(thread_count);
    Control control;
    std::atomic<std::size_t> begun_after{0};
    CountingBatch batch(10000, [&](std::size_t) {
      if (control.cancelled()) begun_after.fetch_add(1);
      control.cancel();
    });
    EXPECT_FALSE(executor->run(batch, 10000, control));
    EXPECT_EQ(batch.running(), 0);
    EXPECT_LT(begun_after.load(), thread_count);  // one per other thread, between its look and its item
    EXPECT_LE(batch.items_that_ran(1), thread_count);
  }
}

TEST_P(EveryExecutor, StopsAfterACancelFromAnotherThread) {
  const auto executor = this->executor(2);
  Control control;
  std::atomic<std::size_t> begun{0};
  CountingBatch batch(1000000, [&](std::size_t) {
    begun.fetch_add(1);
    work_for(std::chrono::microseconds(50));
  });
  std::thread canceller([&] {
    while (begun.load() < 5) std::this_thread::yield();
    control.cancel();
  });
  EXPECT_FALSE(executor->run(batch, 1000000, control));
  canceller.join();
  EXPECT_EQ(batch.items_that_ran(1), begun.load());
  EXPECT_LT(begun.load(), 1000000u);
}

TEST_P(EveryExecutor, CancelAfterTheLastItemIsTooLate) {
  const auto executor = this->executor(1);
  Control control;
  CountingBatch batch(3, [&](std::size_t item) {
    if (item == 2) control.cancel();
  });
  EXPECT_TRUE(executor->run(batch, 3, control));
}

TEST_P(EveryExecutor, MayRunOneExecutorInsideAnother) {
  const auto outer = executor(2);
  const auto inner = executor(2);
  std::atomic<int> wrong{0};
  CountingBatch batch(8, [&](std::size_t) {
    CountingBatch small(9);
    Control control;
    if (!inner->run(small, 9, control) || !small.every_item_ran_once()) wrong.fetch_add(1);
    const auto temporary = executor(2);  // made, used and destroyed by a worker
    CountingBatch other(9);
    if (!temporary->run(other, 9, control) || !other.every_item_ran_once()) wrong.fetch_add(1);
  });
  Control control;
  EXPECT_TRUE(outer->run(batch, 8, control));
  EXPECT_EQ(wrong.load(), 0);
}

// Another task holds one unit for the whole run: the second unit must be enough for workers and caller to finish.
TEST_P(EveryExecutor, FinishesWithTheUnitsThatAreLeft) {
  core::Budget budget;
  budget.set("cpu", 2);
  const auto executor = this->executor(4, &budget);
  budget.acquire(kOneCpu);
  for (int i = 0; i < 20; ++i) {
    CountingBatch batch(30);
    Control control;
    ASSERT_TRUE(executor->run(batch, 30, control));
    ASSERT_TRUE(batch.every_item_ran_once());
    ASSERT_EQ(batch.most_running(), 1);
  }
  budget.release(kOneCpu);
}

TEST_P(EveryExecutor, CancelEndsAWaitForTheBudgetWithoutRunning) {
  core::Budget budget;
  budget.set("cpu", 1);
  const auto executor = this->executor(2, &budget);
  budget.acquire(kOneCpu);
  Control control;
  CountingBatch batch(10);
  std::thread caller([&] { EXPECT_FALSE(executor->run(batch, 10, control)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  control.cancel();
  budget.release(kOneCpu);
  caller.join();
  EXPECT_EQ(batch.items_that_ran(0), 10u);
}

TEST_P(EveryExecutor, LeavesNoThreadsBehind) {
  if (GetParam() == Kind::openmp) GTEST_SKIP() << "the OpenMP runtime keeps its threads";
  const unsigned before = process_thread_count();
  for (int i = 0; i < 200; ++i) {
    const auto executor = this->executor(4);
    CountingBatch batch(8);
    Control control;
    ASSERT_TRUE(executor->run(batch, 8, control));
  }
  EXPECT_TRUE(thread_count_falls_to(before)) << process_thread_count() << " threads, before: " << before;
}

std::unique_ptr<cpu::Executor> pthread_executor(unsigned thread_count, bool pin = false) {
  ExecutorOptions options;
  options.thread_count = thread_count;
  if (pin) options.cores = base::affinity_cores();
  return cpu::make_pthread_executor(options);
}

TEST(PthreadExecutor, StartsThreadsWithTheFirstRunThatCanUseThem) {
  // The thread sanitizer starts a thread of its own with the program's first one: have that behind us, and the first
  // one off /proc.
  std::thread([] {}).join();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const unsigned before = process_thread_count();
  const auto executor = pthread_executor(4);
  EXPECT_EQ(process_thread_count(), before);
  CountingBatch batch(8);
  Control control;
  executor->run(batch, 1, control);
  EXPECT_EQ(process_thread_count(), before);
  executor->run(batch, 8, control);
  EXPECT_EQ(process_thread_count(), before + 3);
  executor->run(batch, 8, control);
  EXPECT_EQ(process_thread_count(), before + 3);
}

// Each of the n items waits until all n run: only n threads can do that.
TEST(PthreadExecutor, UsesAsManyThreadsAsAsked) {
  for (const int thread_count : {2, 3, 8}) {
    const auto executor = pthread_executor(static_cast<unsigned>(thread_count));
    for (int round = 0; round < 3; ++round) {
      std::atomic<int> here{0};
      std::atomic<int> alone{0};
      CountingBatch batch(static_cast<std::size_t>(thread_count), [&](std::size_t) {
        here.fetch_add(1);
        if (!eventually([&] { return here.load() == thread_count; })) alone.fetch_add(1);
      });
      Control control;
      EXPECT_TRUE(executor->run(batch, static_cast<std::size_t>(thread_count), control));
      EXPECT_EQ(alone.load(), 0);
    }
  }
}

// Two callers and two workers: each batch of two items meets inside, so each caller must get a worker.
// A gate holds both workers until both callers are in their first item: else the workers could do one caller's items
// alone, and that caller would have nothing to do.
TEST(PthreadExecutor, SharesItsWorkersAmongCallers) {
  const auto executor = pthread_executor(3);
  std::atomic<int> at_gate{0};
  std::atomic<bool> is_open{false};
  const auto run = [&](std::size_t items, const std::function<void(std::size_t)> &body) {
    CountingBatch batch(items, body);
    Control control;
    EXPECT_TRUE(executor->run(batch, items, control));
    EXPECT_TRUE(batch.every_item_ran_once());
  };
  std::vector<std::thread> threads;
  threads.emplace_back(run, 3, [&](std::size_t) {
    at_gate.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return is_open.load(); }));
  });
  EXPECT_TRUE(eventually([&] { return at_gate.load() == 3; }));
  std::atomic<int> here{0};
  const auto meet = [&](std::size_t) {
    here.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return here.load() == 4; }));
  };
  for (int i = 0; i < 2; ++i) threads.emplace_back(run, 2, meet);
  EXPECT_TRUE(eventually([&] { return here.load() == 2; }));
  is_open = true;
  for (auto &thread : threads) thread.join();
}

// Runs a body on every thread of an executor with n threads.
void on_every_thread(cpu::Executor &executor, const std::function<void()> &body) {
  std::atomic<unsigned> here{0};
  CountingBatch batch(executor.thread_count(), [&](std::size_t) {
    here.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return here.load() == executor.thread_count(); }));
    body();
  });
  Control control;
  EXPECT_TRUE(executor.run(batch, executor.thread_count(), control));
}

TEST(PthreadExecutor, WorkersBlockAllSignals) {
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  const auto executor = pthread_executor(4);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> open{0};
  on_every_thread(*executor, [&] {
    if (std::this_thread::get_id() == caller) return;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF, SIGHUP}) {
      if (sigismember(&mask, signal) == 0) open.fetch_add(1);
    }
  });
  EXPECT_EQ(open.load(), 0);
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) EXPECT_EQ(sigismember(&mine, signal), sigismember(&after, signal));
}

TEST(PthreadExecutor, PinsEachWorkerToOneCoreAndNotTheCaller) {
  const std::vector<unsigned> cores = base::affinity_cores();
  const auto executor = pthread_executor(static_cast<unsigned>(cores.size()) + 1, true);
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::multiset<unsigned> pinned;
  std::atomic<int> wrong{0};
  on_every_thread(*executor, [&] {
    const std::vector<unsigned> mine = base::affinity_cores();
    if (std::this_thread::get_id() == caller) {
      if (mine != cores) wrong.fetch_add(1);
      return;
    }
    const std::lock_guard lock(mutex);
    if (mine.size() != 1) wrong.fetch_add(1);
    pinned.insert(mine.at(0));
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pinned, std::multiset<unsigned>(cores.begin(), cores.end()));
}

// Every call of the test's own question is counted.
std::atomic<unsigned> room_questions{0};
bool there_is_room(unsigned) noexcept {
  ++room_questions;
  return true;
}
bool there_is_no_room(unsigned) noexcept {
  ++room_questions;
  return false;
}

std::unique_ptr<cpu::Executor> executor_with_room(unsigned thread_count, bool (*has_room)(unsigned) noexcept) {
  ExecutorOptions options;
  options.thread_count = thread_count;
  options.has_room = has_room;
  return cpu::make_pthread_executor(options);
}

// Starts the workers and waits until all of them sleep. From then on a worker sleeps once more after each wake-up.
bool all_asleep(cpu::Executor &executor) {
  CountingBatch batch(2);
  Control control;
  if (executor.counts().sleeps == 0) executor.run(batch, 2, control);
  return eventually([&] {
    const cpu::ExecutorCounts counts = executor.counts();
    return counts.sleeps == counts.wakes + executor.thread_count() - 1;
  });
}

// Items of about a microsecond; the first is said to be `share` of all.
class SampledBatch final : public cpu::Batch {
 public:
  explicit SampledBatch(double share) : share_(share) {}
  void run_item(std::size_t) noexcept override { work_for(std::chrono::microseconds(1)); }
  double first_item_share() const noexcept override { return share_; }

 private:
  double share_;
};

TEST(PthreadExecutor, WakesEachSleepingWorkerOnceAndNoMoreThanItemsNeed) {
  const auto executor = executor_with_room(4, there_is_no_room);
  for (const std::size_t item_count : {4, 3, 2, 4, 10000}) {
    ASSERT_TRUE(all_asleep(*executor));
    const std::uint64_t before = executor->counts().wakes, waits_before = executor->counts().caller_sleeps;
    CountingBatch batch(item_count);
    Control control;
    EXPECT_TRUE(executor->run(batch, item_count, control));
    const std::uint64_t wakes = std::min<std::uint64_t>(item_count - 1, 3);
    EXPECT_EQ(executor->counts().wakes - before, wakes) << item_count << " items";
    // However many items: each helper that leaves can end one wait early, and that is all.
    EXPECT_LE(executor->counts().caller_sleeps - waits_before, wakes) << item_count << " items";
  }
  EXPECT_EQ(executor->counts().spins, 0u);
}

TEST(PthreadExecutor, AShortRunWakesNoWorker) {
  const auto executor = executor_with_room(3, there_is_no_room);
  ASSERT_TRUE(all_asleep(*executor));
  const std::uint64_t before = executor->counts().wakes;
  SampledBatch batch(0.25);
  for (int i = 0; i < 30; ++i) {
    Control control;
    ASSERT_TRUE(executor->run(batch, 4, control));
    ASSERT_TRUE(all_asleep(*executor));
  }
  // A first item during which the core was taken away looks long.
  EXPECT_LE(executor->counts().wakes - before, 10u) << "of 60 possible ones";
}

// Says how much of the work its first item is, and gives up its last item if it is asked to join them.
class JoinedBatch final : public CountingBatch {
 public:
  JoinedBatch(std::size_t item_count, double share, std::function<void(std::size_t)> body = nullptr)
      : CountingBatch(item_count, std::move(body)), share_(share) {}
  double first_item_share() const noexcept override { return share_; }
  std::size_t join_rest(std::size_t item_count) noexcept override {
    ++joins;
    return item_count - 1;
  }
  int joins = 0;

 private:
  double share_;
};

constexpr double kAlmostAll = 1 - 1e-12;

TEST(PthreadExecutor, AShortRunThatNoWorkerHelpsJoinsItsItems) {
  const auto executor = executor_with_room(3, there_is_no_room);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(all_asleep(*executor));
    JoinedBatch batch(4, kAlmostAll);
    Control control;
    EXPECT_TRUE(executor->run(batch, 4, control));
    EXPECT_EQ(batch.joins, 1);
    EXPECT_EQ(batch.items_that_ran(1), 3u);
  }
}

// Keeps the only worker of an executor busy until `is_open`, and meanwhile runs the batch from another thread.
void run_beside_busy_worker(cpu::Batch &batch, std::size_t item_count, const std::atomic<bool> &is_open) {
  const auto executor = pthread_executor(2);
  std::atomic<bool> is_busy{false};
  std::thread other([&] {
    CountingBatch long_one(2, [&](std::size_t item) {
      if (item == 1) is_busy = true;
      EXPECT_TRUE(eventually([&] { return item == 0 ? is_busy.load() : is_open.load(); }));
    });
    Control control;
    EXPECT_TRUE(executor->run(long_one, 2, control));
  });
  EXPECT_TRUE(eventually([&] { return is_busy.load(); }));
  Control control;
  EXPECT_TRUE(executor->run(batch, item_count, control));
  other.join();
}

TEST(PthreadExecutor, ItemsOfAWorkerThatCameAndLeftDuringTheFirstItemRunOnce) {
  std::atomic<bool> is_open{false};
  std::atomic<int> others{0};
  JoinedBatch batch(4, kAlmostAll, [&](std::size_t item) {
    if (item != 0) return void(others.fetch_add(1));
    is_open = true;
    EXPECT_TRUE(eventually([&] { return others.load() == 3; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until it has left
  });
  run_beside_busy_worker(batch, 4, is_open);
  EXPECT_TRUE(batch.every_item_ran_once());
}

TEST(PthreadExecutor, AWorkerThatBecomesFreeHelpsALongRun) {
  std::atomic<bool> is_open{false};
  std::atomic<int> here{0};
  JoinedBatch batch(3, 1e-9, [&](std::size_t item) {
    if (item == 0) return;
    is_open = true;
    here.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return here.load() == 2; }));
  });
  run_beside_busy_worker(batch, 3, is_open);
  EXPECT_TRUE(batch.every_item_ran_once());
}

// The first item takes a microsecond and is a millionth: a second is left.
TEST(PthreadExecutor, ALongRunWakesAllItsWorkersAfterItsFirstItem) {
  const auto executor = executor_with_room(4, there_is_no_room);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(all_asleep(*executor));
    const std::uint64_t before = executor->counts().wakes;
    SampledBatch batch(1e-6);
    Control control;
    ASSERT_TRUE(executor->run(batch, 100, control));
    EXPECT_EQ(executor->counts().wakes - before, 3u);
  }
}

void bind_this_thread(unsigned core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
}

// Worker and caller are pinned to two cores: on a busy machine the system wakes a worker on the core of its caller.
// A thread that is pinned sees one core.
TEST(PthreadExecutor, PinsWorkersToAllCoresAlsoIfAPinnedThreadStartsThem) {
  const std::vector<unsigned> cores = base::affinity_cores();
  if (cores.size() < 2) GTEST_SKIP() << "NOT RUN: there is one core";
  const auto executor = pthread_executor(3, true);
  std::mutex mutex;
  std::set<unsigned> found;
  std::thread([&] {
    bind_this_thread(cores[0]);
    const std::thread::id caller = std::this_thread::get_id();
    on_every_thread(*executor, [&] {
      if (std::this_thread::get_id() == caller) return;
      const std::lock_guard lock(mutex);
      for (const unsigned core : base::affinity_cores()) found.insert(core);
    });
  }).join();
  EXPECT_EQ(found.size(), 2u);
}

TEST(PthreadExecutor, RunsThatFollowEachOtherFindSpinningWorkers) {
  const std::vector<unsigned> cores = base::affinity_cores();
  if (cores.size() < 2) GTEST_SKIP() << "a worker does not spin on the core of its caller";
  ExecutorOptions options;
  options.thread_count = 2;
  options.cores = cores;  // the worker to the second core
  options.has_room = there_is_room;
  const auto executor = cpu::make_pthread_executor(options);
  ASSERT_TRUE(all_asleep(*executor));
  SampledBatch batch(0.25);
  std::uint64_t runs = 0;
  std::thread([&] {
    bind_this_thread(cores[0]);
    for (; runs < 1000000 && (runs < 1000 || executor->counts().spins == 0); ++runs) {
      Control control;
      ASSERT_TRUE(executor->run(batch, 4, control));
    }
  }).join();
  EXPECT_GT(executor->counts().spins, 0u) << runs << " runs";
  EXPECT_GT(executor->counts().wakes, 0u) << "the first worker was asleep";
  EXPECT_LT(executor->counts().wakes, runs / 4);
}

TEST(PthreadExecutor, DoesNotSpinWhereOthersWantTheCores) {
  const auto executor = executor_with_room(3, there_is_no_room);
  room_questions = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) {
    CountingBatch batch(3);
    Control control;
    ASSERT_TRUE(executor->run(batch, 3, control));
  }
  EXPECT_EQ(executor->counts().spins, 0u);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(room_questions.load(), static_cast<unsigned>(took / std::chrono::milliseconds(10)) + 1)
      << "asked more than once in 10 ms";
}

TEST(PthreadExecutor, AnIdlePoolUsesNoProcessorTime) {
  const auto executor = executor_with_room(4, there_is_room);
  for (int i = 0; i < 500; ++i) {
    CountingBatch batch(4);
    Control control;
    ASSERT_TRUE(executor->run(batch, 4, control));
  }
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(used() - before, std::chrono::milliseconds(10));
  EXPECT_TRUE(all_asleep(*executor));
}

// In a child with no address space left for stacks (pthread_create: EAGAIN) the work is still done.
TEST(PthreadExecutor, GoesOnWithFewerThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs its address space";
#else
  const pid_t child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // Room for one or two stacks of 8 MiB, the usual default, and not for 63.
    const rlim_t limit_bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{24} << 20);
    const rlimit limit{limit_bytes, limit_bytes};
    const rlimit stack{rlim_t{8} << 20, rlim_t{8} << 20};
    setrlimit(RLIMIT_STACK, &stack);
    setrlimit(RLIMIT_AS, &limit);
    const auto executor = pthread_executor(64);
    CountingBatch batch(1000);
    Control control;
    const bool all = executor->run(batch, 1000, control) && batch.every_item_ran_once();
    _exit(all ? (process_thread_count() < 64 ? 0 : 2) : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: wrong result, 2: the limit stopped no thread";
#endif
}

TEST(OpenmpExecutor, SaysWhichModuleIsMissing) {
  const std::string message =
      refusal(TANDEM_ERROR_UNAVAILABLE, [] { cpu::make_openmp_executor_from("/nonexistent", {}); });
  EXPECT_NE(message.find("/nonexistent/libtandem_openmp.so"), std::string::npos) << message;
}

TEST(OpenmpExecutor, RefusesAModuleOfAnotherVersion) {
  const auto check = [](const tandem_openmp_module *module) { cpu::check_openmp_module(module, "/a/module.so"); };
  const auto refusal = [&](const tandem_openmp_module *module) {
    return test::refusal(TANDEM_ERROR_UNAVAILABLE, [&] { check(module); });
  };
  tandem_openmp_module module{TANDEM_OPENMP_VERSION, sizeof(tandem_openmp_module), [](const tandem_openmp_run *) {}};
  EXPECT_NO_THROW(check(&module));
  module.version = 7;
  EXPECT_EQ(refusal(&module), "executor \"openmp\": /a/module.so has version 7, this library needs version 3");
  module.version = TANDEM_OPENMP_VERSION;
  module.struct_bytes = 8;
  EXPECT_NE(refusal(&module).find("table of 8 bytes"), std::string::npos);
  EXPECT_NE(refusal(nullptr), "");
}

TEST(OpenmpExecutor, KnowsTheFolderOfItsOwnFile) {
  const std::string folder = base::own_folder("test");
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void *>(&base::own_folder), &info), 0);
  EXPECT_EQ(folder.front(), '/');
  EXPECT_TRUE(std::filesystem::equivalent(folder, std::filesystem::canonical(info.dli_fname).parent_path()));
}

// Each item waits for the others: the region has as many threads as asked.
TEST(OpenmpExecutor, UsesAsManyThreadsAsAsked) {
  const std::string reason = why_not(Kind::openmp);
  if (!reason.empty()) GTEST_SKIP() << reason;
  ExecutorOptions options;
  options.thread_count = 3;
  const auto executor = make(Kind::openmp, options);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  on_every_thread(*executor, [&] {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 3u);
}

}  // namespace
}  // namespace tandem::test
