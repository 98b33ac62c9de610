// SPDX-License-Identifier: Apache-2.0
// The threads of a call, what they have done, and whether they shall stop.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/pace.hpp"

namespace tandem::base {

// What a call has done. Any thread counts and asks; the thread that made the meter reports, ten times a second.
class Meter {
 public:
  // Other than 0 cancels the call. A total of UINT64_MAX is unknown.
  using Report = std::int32_t (*)(void *user, std::uint64_t done_bytes, std::uint64_t total_bytes);
  explicit Meter(Report report = nullptr, void *user = nullptr, std::uint64_t total_bytes = 0,
                 std::uint64_t bytes_per_second = 0)  // 0: no limit
      : report_(report), user_(user), pace_(bytes_per_second), total_(total_bytes) {}

  void add_total(std::uint64_t bytes) { total_ += bytes; }
  // Waits until these bytes are within the rate. Throws CANCELLED when the call shall stop.
  void done(std::uint64_t bytes);
  auto counter() {
    return [this](std::uint64_t bytes) { done(bytes); };
  }
  // Reports now. Throws as done().
  void check();
  bool shall_stop();
  // For loops that look at a flag; set by a cancel and by stop().
  const std::atomic<bool> &stopped() const noexcept { return stopped_; }
  void stop() noexcept { stopped_ = true; }
  bool is_cancelled() const noexcept { return is_cancelled_; }
  std::uint64_t done_bytes() const noexcept { return done_; }
  std::uint64_t total_bytes() const noexcept { return total_; }
  std::uint64_t call_count() const noexcept { return calls_; }  // of done(): each is a moment to cancel
  // The last moment to cancel.
  void commit() {
    check();
    can_cancel_ = false;
  }
  // All is done: the total is, or if it is unknown, what was done is the total.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void tell();

  const Report report_;
  void *const user_;
  const Pace pace_;
  const std::thread::id caller_ = std::this_thread::get_id();
  Clock::time_point reported_{};
  std::atomic<std::uint64_t> done_{0}, total_, calls_{0};
  std::atomic<bool> stopped_{false}, is_cancelled_{false};
  bool can_cancel_ = true;  // of the thread that reports
};

struct TaskBatch;

class Crew {
 public:
  // Threads beside the calling one. If there are cores, each thread runs on one of them.
  explicit Crew(std::size_t thread_count, std::span<const unsigned> cores = {},
                std::size_t processors = std::thread::hardware_concurrency());
  ~Crew();
  Crew(const Crew &) = delete;
  Crew &operator=(const Crew &) = delete;

  // Tasks that wait for I/O share all threads. Tasks that only compute and copy share the processors that no other
  // run() computes on. More threads would wait for each other's locks in the kernel.
  enum class Tasks { wait, compute };

  // Calls task(0) .. task(count - 1) and returns when all are done. Throws the first exception of a task; those that
  // had not begun then are left out. The calling thread works too. With 0 threads it does everything, in order.
  void run(std::size_t count, const std::function<void(std::size_t)> &task, Tasks kind = Tasks::wait);
  // As run(), but the calling thread only reports: there must be others. The first task that fails stops the meter, so
  // that tasks that count, or look at it, end too. A failure after a cancel is the cancel.
  void run(std::size_t count, const std::function<void(std::size_t)> &task, Meter &meter);

 private:
  std::shared_ptr<TaskBatch> begin(std::size_t count, const std::function<void(std::size_t)> &task,
                                   std::size_t helpers);
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<TaskBatch>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> computing_{0};  // calls of run() with tasks that compute
  const std::size_t processors_;
};

}  // namespace tandem::base
