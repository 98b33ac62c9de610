// SPDX-License-Identifier: Apache-2.0
#include "base/crew.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>

#include "base/error.hpp"

namespace tandem::base {
namespace {

std::set<std::thread::id> threads_of(Crew &crew, std::size_t count, Crew::Tasks kind) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  crew.run(
      count,
      [&](std::size_t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a thread too many has time to come
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      },
      kind);
  return threads;
}

// Each task waits until `count` of them run: fewer threads would hang.
void run_at_once(Crew &crew, std::size_t count, Crew::Tasks kind) {
  std::barrier all(static_cast<std::ptrdiff_t>(count));
  crew.run(
      count, [&](std::size_t) { all.arrive_and_wait(); }, kind);
}

TEST(Crew, TasksThatWaitHaveAllThreads) {
  Crew crew(3, {}, 1);
  run_at_once(crew, 4, Crew::Tasks::wait);
}

TEST(Crew, TasksThatComputeHaveOneThreadForEachProcessor) {
  Crew crew(8, {}, 3);
  run_at_once(crew, 3, Crew::Tasks::compute);
  for (int round = 0; round < 3; ++round) EXPECT_LE(threads_of(crew, 20, Crew::Tasks::compute).size(), 3u);
}

TEST(Crew, CallersThatComputeAreCounted) {
  Crew crew(8, {}, 2);
  const std::set<std::thread::id> caller = {std::this_thread::get_id()};
  for (int round = 0; round < 3; ++round)
    crew.run(
        1, [&](std::size_t) { EXPECT_EQ(threads_of(crew, 20, Crew::Tasks::compute), caller); }, Crew::Tasks::compute);
  run_at_once(crew, 2, Crew::Tasks::compute);  // it has ended
  EXPECT_THROW(crew.run(
                   1, [](std::size_t) { throw std::runtime_error("x"); }, Crew::Tasks::compute),
               std::runtime_error);
  run_at_once(crew, 2, Crew::Tasks::compute);
}

TEST(Crew, TasksAfterAnErrorAreLeftOut) {
  Crew crew(3);
  std::atomic<int> begun{0};
  EXPECT_THROW(crew.run(1000,
                        [&](std::size_t i) {
                          ++begun;
                          if (i == 0) throw std::runtime_error("x");
                          std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        }),
               std::runtime_error);
  EXPECT_LT(begun, 500);
}

// A task that is stopped because another one failed must not hide why.
TEST(Crew, TheFirstFailureIsThatOfTheCall) {
  Crew crew(4);
  Meter meter;
  std::atomic<bool> waits{true};
  try {
    crew.run(
        4,
        [&](std::size_t i) {
          while (i != 0 && waits) std::this_thread::yield();
          waits = false;
          if (i == 0) fail(TANDEM_ERROR_DAMAGED, "x");
          for (;;) meter.done(1);
        },
        meter);
    FAIL() << "no error";
  } catch (const Error &error) {
    EXPECT_EQ(error.status(), TANDEM_ERROR_DAMAGED);
  }
}

// Whether tasks count or look at the flag. A callback that has cancelled is not called again, and later failures are
// the cancel.
TEST(Crew, ACallbackCancelsWhileOthersWork) {
  for (const bool counts : {false, true}) {
    Crew crew(2);
    int calls = 0;
    Meter meter(
        [](void *user, std::uint64_t, std::uint64_t) -> std::int32_t { return ++*static_cast<int *>(user) == 3; },
        &calls);
    try {
      crew.run(
          3,
          [&](std::size_t i) {
            while (!meter.stopped()) counts ? meter.done(1) : std::this_thread::yield();
            if (i == 0) fail(TANDEM_ERROR_IO, "x");
          },
          meter);
      FAIL() << "no error";
    } catch (const Error &error) {
      EXPECT_EQ(error.status(), TANDEM_ERROR_CANCELLED);
    }
    EXPECT_EQ(calls, 3);
  }
}

TEST(Crew, ACancelAfterTheCommitHasNoEffect) {
  bool cancels = false;
  Meter meter([](void *user, std::uint64_t, std::uint64_t) -> std::int32_t { return *static_cast<bool *>(user); },
              &cancels);
  meter.commit();
  cancels = true;
  meter.check();
  EXPECT_FALSE(meter.stopped());
}

}  // namespace
}  // namespace tandem::base
