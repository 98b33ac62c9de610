// SPDX-License-Identifier: Apache-2.0
// Threads that work on members at the same time.
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

namespace tandem::volume {

class Pool {
 public:
  // The calling thread works too. With 0 threads it does everything, in order.
  explicit Pool(std::size_t thread_count, std::size_t processors = std::thread::hardware_concurrency());
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // Tasks that wait for members share all threads. Tasks that only compute and copy share the processors that no other
  // run() computes on. More threads would wait for each other's locks in the kernel.
  enum class Tasks { wait, compute };

  // Calls task(0) .. task(count - 1) and returns when all are done. Throws the first exception of a task.
  void run(std::size_t count, const std::function<void(std::size_t)> &task, Tasks kind = Tasks::wait);

 private:
  struct Batch;
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Batch>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> computing_{0};  // calls of run() with tasks that compute
  const std::size_t processors_;
};

}  // namespace tandem::volume
