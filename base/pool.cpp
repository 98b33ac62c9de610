// SPDX-License-Identifier: Apache-2.0
#include "base/pool.hpp"

#include <exception>
#include <utility>

#include "base/signals.hpp"

namespace tandem::base {

struct TaskBatch {
  const std::function<void(std::size_t)> *task;
  std::size_t count, next = 0, done = 0;
  std::mutex mutex;
  std::condition_variable all_done;
  std::exception_ptr error;

  // Does one task, or leaves it out after an error; false when all are taken.
  bool step() {
    std::size_t mine;
    bool is_left_out;
    {
      const std::lock_guard lock(mutex);
      if (next == count) return false;
      mine = next++;
      is_left_out = static_cast<bool>(error);
    }
    std::exception_ptr failed;
    try {
      if (!is_left_out) (*task)(mine);
    } catch (...) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (failed && !error) error = std::move(failed);
    if (++done == count) all_done.notify_all();
    return true;
  }
};

TaskPool::TaskPool(std::size_t thread_count, std::size_t processors) : processors_(processors) {
  const base::SignalsBlocked blocked;
  threads_.reserve(thread_count);
  try {
    for (std::size_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error &) {  // fewer threads: the caller's does the rest
  }
}

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

void TaskPool::run(std::size_t count, const std::function<void(std::size_t)> &task, Tasks kind) {
  if (count == 0) return;
  std::size_t helpers = std::min(count - 1, threads_.size());
  struct Computing {
    std::atomic<std::size_t> *calls;
    ~Computing() {
      if (calls != nullptr) --*calls;
    }
  } computing{nullptr};
  if (kind == Tasks::compute) {
    const std::size_t calls = ++computing_;
    computing.calls = &computing_;
    helpers = std::min(helpers, processors_ > calls ? processors_ - calls : 0);
  }
  if (helpers == 0) {
    for (std::size_t i = 0; i < count; ++i) task(i);
    return;
  }
  const auto batch = std::make_shared<TaskBatch>();
  batch->task = &task;
  batch->count = count;
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), helpers, batch);
  }
  for (std::size_t i = 0; i < helpers; ++i) wake_.notify_one();
  while (batch->step()) {
  }
  std::unique_lock lock(batch->mutex);
  batch->all_done.wait(lock, [&] { return batch->done == count; });
  // The caller is the only owner of the exception: threads may still hold the batch.
  if (batch->error) std::rethrow_exception(std::exchange(batch->error, nullptr));
}

void TaskPool::work() {
  for (;;) {
    std::shared_ptr<TaskBatch> batch;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
    }
    while (batch->step()) {
    }
  }
}

}  // namespace tandem::base
