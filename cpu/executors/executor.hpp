// SPDX-License-Identifier: Apache-2.0
// How the CPU backend spreads a run over threads. An executor runs items 0..count-1 of a batch, each once, on up to
// `thread_count` threads, and returns when the last is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"

struct tandem_openmp_module;  // cpu/executors/openmp_module.hpp

namespace tandem::core {
class Budget;
}

namespace tandem::cpu {

// The items of one run. run_item does not throw; items are independent.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual void run_item(std::size_t item) noexcept = 0;

  // The part of the work that is in item 0, if it is small enough to be a sample of the rest. An executor then wakes
  // threads only if they can still help. 0: unknown, and threads are woken at once.
  virtual double first_item_share() const noexcept { return 0; }

  // Called after item 0, if only the calling thread works on the run: may join items, which cost less then. Returns how
  // many there are now, item 0 included.
  virtual std::size_t join_rest(std::size_t item_count) noexcept { return item_count; }
};

// How often threads of an executor waited so far, in this process.
struct ExecutorCounts {
  std::uint64_t spins = 0;          // of a worker, for its next run; 100 microseconds at most
  std::uint64_t sleeps = 0;         // of a worker
  std::uint64_t wakes = 0;          // of a worker that slept
  std::uint64_t caller_sleeps = 0;  // until the last worker is done
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char *name() const noexcept = 0;
  virtual unsigned thread_count() const noexcept = 0;
  virtual ExecutorCounts counts() noexcept { return {}; }  // of pthread

  // Runs the items; the calling thread works too. Several threads at once may call it, also in a child after fork. Each
  // item holds one unit of "cpu", and control.needs(), while it runs. If control.cancelled() is set before an item, the
  // rest is skipped. Returns whether every item ran. The batch is not used after that. At most most_threads (>= 1)
  // threads work on it at once, including the caller. Throws as core::Budget::acquire does; some items have run then.
  virtual bool run(Batch &batch, std::size_t item_count, core::Control &control, unsigned most_threads) = 0;
  bool run(Batch &batch, std::size_t item_count, core::Control &control) {
    return run(batch, item_count, control, thread_count());
  }
};

struct ExecutorOptions {
  unsigned thread_count = 1;       // >= 1; the calling thread is one of them
  std::vector<unsigned> cores;     // pthread: workers are pinned to these in turn; empty: they are not pinned
  core::Budget *budget = nullptr;  // outlives the executor; null = no cap
  // pthread: whether a pool of thread_count threads may spin; asked at most once in 10 ms. Null: it may if cgroup
  // quota, affinity mask and the machine's load leave a core for each thread.
  bool (*has_room)(unsigned thread_count) noexcept = nullptr;
};

// All throw Error (INVALID_ARGUMENT) for a thread_count of 0. Threads start with the first run that can use them.
std::unique_ptr<Executor> make_serial_executor(const ExecutorOptions &options);
std::unique_ptr<Executor> make_pthread_executor(const ExecutorOptions &options);
// Opens the module in the library's own folder. Throws Error (UNAVAILABLE) if it is missing. In a forked child it works
// as, and is named, "pthread": libgomp hangs in a child of a process that used it. A runtime that cannot start its
// threads ends the process (libgomp: gomp_fatal); the pthread executor continues with fewer.
std::unique_ptr<Executor> make_openmp_executor(const ExecutorOptions &options);
// The same with the module of another folder.
std::unique_ptr<Executor> make_openmp_executor_from(const std::string &folder, const ExecutorOptions &options);
// Throws Error (UNAVAILABLE) unless this library and that module speak the same version.
void check_openmp_module(const tandem_openmp_module *module, const std::string &path);

// Cores that this process may use: affinity mask and cgroup CPU quota (v1 and v2), rounded up, at least 1.
unsigned allowed_core_count();

}  // namespace tandem::cpu
