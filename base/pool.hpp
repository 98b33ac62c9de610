// SPDX-License-Identifier: Apache-2.0
// Threads that share the tasks of a call: I/Os that wait, or computing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::base {

struct TaskBatch;

class TaskPool {
 public:
  // The calling thread works too. With 0 threads it does everything, in order.
  explicit TaskPool(std::size_t thread_count, std::size_t processors = std::thread::hardware_concurrency());
  ~TaskPool();
  TaskPool(const TaskPool &) = delete;
  TaskPool &operator=(const TaskPool &) = delete;

  // Tasks that wait for I/O share all threads. Tasks that only compute and copy share the processors that no other
  // run() computes on. More threads would wait for each other's locks in the kernel.
  enum class Tasks { wait, compute };

  // Calls task(0) .. task(count - 1) and returns when all are done. Throws the first exception of a task; those that
  // had not begun then are left out.
  void run(std::size_t count, const std::function<void(std::size_t)> &task, Tasks kind = Tasks::wait);

 private:
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
