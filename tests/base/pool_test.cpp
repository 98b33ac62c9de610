// SPDX-License-Identifier: Apache-2.0
#include "base/pool.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>

namespace tandem::base {
namespace {

std::set<std::thread::id> threads_of(TaskPool &pool, std::size_t count, TaskPool::Tasks kind) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  pool.run(
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
void run_at_once(TaskPool &pool, std::size_t count, TaskPool::Tasks kind) {
  std::barrier all(static_cast<std::ptrdiff_t>(count));
  pool.run(
      count, [&](std::size_t) { all.arrive_and_wait(); }, kind);
}

TEST(TaskPool, TasksThatWaitHaveAllThreads) {
  TaskPool pool(3, 1);
  run_at_once(pool, 4, TaskPool::Tasks::wait);
}

TEST(TaskPool, TasksThatComputeHaveOneThreadForEachProcessor) {
  TaskPool pool(8, 3);
  run_at_once(pool, 3, TaskPool::Tasks::compute);
  for (int round = 0; round < 3; ++round) EXPECT_LE(threads_of(pool, 20, TaskPool::Tasks::compute).size(), 3u);
}

TEST(TaskPool, CallersThatComputeAreCounted) {
  TaskPool pool(8, 2);
  const std::set<std::thread::id> caller = {std::this_thread::get_id()};
  for (int round = 0; round < 3; ++round)
    pool.run(
        1, [&](std::size_t) { EXPECT_EQ(threads_of(pool, 20, TaskPool::Tasks::compute), caller); },
        TaskPool::Tasks::compute);
  run_at_once(pool, 2, TaskPool::Tasks::compute);  // it has ended
  EXPECT_THROW(pool.run(
                   1, [](std::size_t) { throw std::runtime_error("x"); }, TaskPool::Tasks::compute),
               std::runtime_error);
  run_at_once(pool, 2, TaskPool::Tasks::compute);
}

TEST(TaskPool, TasksAfterAnErrorAreLeftOut) {
  TaskPool pool(3);
  std::atomic<int> begun{0};
  EXPECT_THROW(pool.run(1000,
                        [&](std::size_t i) {
                          ++begun;
                          if (i == 0) throw std::runtime_error("x");
                          std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        }),
               std::runtime_error);
  EXPECT_LT(begun, 500);
}

}  // namespace
}  // namespace tandem::base
