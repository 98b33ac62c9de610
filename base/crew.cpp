// SPDX-License-Identifier: Apache-2.0
#include "base/crew.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/affinity.hpp"
#include "base/error.hpp"
#include "base/os.hpp"
#include "base/signals.hpp"

namespace tandem::base {
namespace {

constexpr std::chrono::milliseconds kBetweenReports{100};

}  // namespace

// ---- meter

void Meter::tell() {
  if (is_cancelled_) return;  // the caller may have let go what it reports to
  reported_ = Clock::now();
  if (report_(user_, done_, total_) == 0 || !can_cancel_) return;
  stopped_ = is_cancelled_ = true;
}

bool Meter::shall_stop() {
  if (report_ != nullptr && std::this_thread::get_id() == caller_ && Clock::now() - reported_ >= kBetweenReports)
    tell();
  return stopped_;
}

void Meter::done(std::uint64_t bytes) {
  const auto stops = [this] {
    if (shall_stop()) fail(TANDEM_ERROR_CANCELLED, "cancelled");
    return false;
  };
  calls_.fetch_add(1, std::memory_order_relaxed);
  stops();
  if (bytes != 0) pace_.wait(done_ += bytes, stops);
}

void Meter::check() {
  if (report_ != nullptr && std::this_thread::get_id() == caller_) tell();
  done(0);
}

void Meter::finish() {
  if (total_ == UINT64_MAX)
    total_ = done_.load();
  else
    done_ = total_.load();
  check();
}

// ---- crew

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

Crew::Crew(std::size_t thread_count, std::span<const unsigned> cores, std::size_t processors)
    : processors_(processors) {
  const SignalsBlocked blocked;
  threads_.reserve(thread_count);
  try {
    for (std::size_t i = 0; i < thread_count; ++i) {
      threads_.emplace_back([this] { work(); });
      if (!cores.empty()) os::pin_thread(threads_.back().native_handle(), cores[i % cores.size()]);
    }
  } catch (const std::exception &) {  // fewer threads do the same work
  }
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

std::shared_ptr<TaskBatch> Crew::begin(std::size_t count, const std::function<void(std::size_t)> &task,
                                       std::size_t helpers) {
  const auto batch = std::make_shared<TaskBatch>();
  batch->task = &task;
  batch->count = count;
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), helpers, batch);
  }
  for (std::size_t i = 0; i < helpers; ++i) wake_.notify_one();
  return batch;
}

void Crew::run(std::size_t count, const std::function<void(std::size_t)> &task, Tasks kind) {
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
  const auto batch = begin(count, task, helpers);
  while (batch->step()) {
  }
  std::unique_lock lock(batch->mutex);
  batch->all_done.wait(lock, [&] { return batch->done == count; });
  // The caller is the only owner of the exception: threads may still hold the batch.
  if (batch->error) std::rethrow_exception(std::exchange(batch->error, nullptr));
}

void Crew::run(std::size_t count, const std::function<void(std::size_t)> &task, Meter &meter) {
  std::atomic<bool> has_failed{false};
  std::exception_ptr first;  // the next ones are of tasks that were stopped
  const std::function<void(std::size_t)> guarded = [&](std::size_t i) {
    if (meter.stopped()) return;
    try {
      task(i);
    } catch (...) {
      if (!has_failed.exchange(true) && !meter.is_cancelled()) first = std::current_exception();
      meter.stop();
    }
  };
  if (threads_.empty()) fail(TANDEM_ERROR_OUT_OF_MEMORY, "cannot start a thread");
  const auto batch = begin(count, guarded, std::min(count, threads_.size()));
  std::unique_lock lock(batch->mutex);
  while (!batch->all_done.wait_for(lock, kBetweenReports, [&] { return batch->done == count; })) {
    lock.unlock();
    meter.shall_stop();
    lock.lock();
  }
  lock.unlock();
  if (first) std::rethrow_exception(first);
  meter.check();
}

void Crew::work() {
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
