// SPDX-License-Identifier: Apache-2.0
// Calls of functions that may never return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace tandem::base {

// Runs `ask` on a thread of its own and returns its result. Returns nothing if it takes longer than `patience` (the
// thread continues), if it throws, or if no thread can be started.
template <class Answer, class Ask>
std::optional<Answer> answer_within(std::chrono::milliseconds patience, Ask ask) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable came;
    bool is_over = false;
    std::optional<Answer> answer;
  };
  const auto shared = std::make_shared<Shared>();
  const auto run = [shared, ask = std::move(ask)] {
    std::optional<Answer> answer;
    try {
      answer = ask();
    } catch (const std::exception &) {
    }
    const std::lock_guard lock(shared->mutex);
    shared->answer = std::move(answer);
    shared->is_over = true;
    shared->came.notify_all();
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error &) {
    return {};
  }
  std::unique_lock lock(shared->mutex);
  shared->came.wait_for(lock, patience, [&] { return shared->is_over; });
  return shared->answer;
}

}  // namespace tandem::base
