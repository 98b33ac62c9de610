// SPDX-License-Identifier: Apache-2.0
// Threads of one call. Each takes one stripe after the other through read, check, code and write. So steps of different
// stripes overlap without queues. The calling thread reports progress meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

#include "base/pace.hpp"
#include "files/format.hpp"
#include "tandem/files.h"

namespace tandem::files {

class Workers {
 public:
  // If the context pins its threads, each worker runs on one core, and so do the pages that it touches first.
  Workers(const tandem_context *context, tandem_files_progress progress, void *progress_user, std::uint64_t total_bytes)
      : context_(context), progress_(progress), progress_user_(progress_user), total_bytes_(total_bytes) {}

  // Runs work(0) ... work(thread_count - 1), each on a thread of its own. Throws the exception of the first that threw,
  // or TANDEM_ERROR_CANCELLED. Workers check stopped() between stripes.
  void run(unsigned thread_count, const std::function<void(unsigned)> &work);

  const std::atomic<bool> &stopped() const noexcept { return stopped_; }
  // With a limit of the rate: waits until the bytes of all workers are due.
  void add_done(std::uint64_t bytes);
  // 0 = no limit, as from the start.
  void limit_rate(std::uint64_t bytes_per_second) { pace_ = base::Pace(bytes_per_second); }

  // After run of a stream: the bytes that are done become the total.
  void end_stream() { total_bytes_ = done_bytes_.load(); }

  // After run: reports, and throws TANDEM_ERROR_CANCELLED if that is the answer.
  void check_cancelled();

  // Lets workers of one run pass in order: enter(n) returns when n - 1 has left, false when stopped.
  bool enter(std::uint64_t turn);
  void leave(std::uint64_t turn);

 private:
  void stop_with(std::exception_ptr error);
  void report();

  const tandem_context *context_;
  tandem_files_progress progress_;
  void *progress_user_;
  std::uint64_t total_bytes_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> stopped_{false};
  base::Pace pace_;
  std::mutex mutex_;  // what follows
  std::condition_variable worker_ended_, turn_changed_;
  std::exception_ptr error_;
  unsigned running_count_ = 0;
  std::uint64_t turn_ = 0;
};

constexpr std::uint32_t kMaxThreadCount = 1024;

// The number of threads for stripes of stripe_bytes each: as asked for, within the work and the memory limit (256 MiB
// and 64 MiB a thread). 0: as many callers as keep the context busy, so that a device codes while others read and
// write.
unsigned worker_count_for(const tandem_context *context, std::uint32_t asked_count, std::uint64_t stripe_bytes,
                          std::uint64_t stripe_count);

// How a call divides its stripes. On the CPU's own threads several workers keep the cores busy. Each codes one stripe
// while it is in the cache, in pieces small enough to stay on the worker's thread; a wide stripe in one call. A single
// worker lets the context's threads help. If calls are spread elsewhere (over OpenMP's threads, to a device, over a
// hybrid), a worker collects stripes of kBatchBytes and codes them in one call. A device then has enough work, and the
// work can be shared.
struct Division {
  unsigned worker_count;
  std::uint64_t batch_stripes;  // that a worker has in its buffers at once
  std::uint64_t piece_bytes;    // of each shard, coded in one call at most; UINT64_MAX: a batch in one call
};
constexpr std::uint64_t kBatchBytes = 8u << 20;  // of data and parity; within the bound of worker_count_for

Division divide(const tandem_context *context, std::uint32_t asked_count, const SetHeader &header,
                std::uint64_t stripe_count);

}  // namespace tandem::files
