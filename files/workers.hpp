// Threads of one call. Each takes stripe after stripe through read, check, code and write, so that the steps of
// different stripes overlap without queues between them; the calling thread meanwhile reports progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

#include "files/format.hpp"
#include "tandem/files.h"

namespace tandem::files {

class Workers {
 public:
  Workers(tandem_files_progress progress, void *progress_user, std::uint64_t total_bytes)
      : progress_(progress), progress_user_(progress_user), total_bytes_(total_bytes) {}

  // Runs work(0) ... work(thread_count - 1), each on a thread of its own; throws what the first of them threw, or
  // TANDEM_ERROR_CANCELLED. Workers look at stopped() between stripes.
  void run(unsigned thread_count, const std::function<void(unsigned)> &work);

  const std::atomic<bool> &stopped() const noexcept { return stopped_; }
  void add_done(std::uint64_t bytes) noexcept { done_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // After run of a stream: the bytes that are done become the total.
  void end_stream() { total_bytes_ = done_bytes_.load(); }

  // After run: reports, and throws TANDEM_ERROR_CANCELLED if that is the answer.
  void check_cancelled();

  // Lets the workers through in the order of stripes: enter(n) returns when stripe n - 1 has left, false when stopped.
  bool enter(std::uint64_t stripe);
  void leave(std::uint64_t stripe);

 private:
  void stop_with(std::exception_ptr error);
  void report();

  tandem_files_progress progress_;
  void *progress_user_;
  std::uint64_t total_bytes_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // what follows
  std::condition_variable worker_ended_, turn_changed_;
  std::exception_ptr error_;
  unsigned running_count_ = 0;
  std::uint64_t turn_ = 0;
};

constexpr std::uint32_t kMaxThreadCount = 1024;

// Threads for stripes of stripe_bytes each: what is asked for (0: as many callers as keep the context busy, so that a
// device codes while others read and write), within the work and within memory
// (256 MiB and 64 MiB a thread).
unsigned worker_count_for(const tandem_context *context, std::uint32_t asked_count, std::uint64_t stripe_bytes,
                          std::uint64_t stripe_count);

// How a call divides its stripes. On the CPU's own threads several workers keep the cores busy by themselves: each
// codes one stripe while it is in the cache, in pieces that are small enough to stay on the worker's thread, a wide one
// in one call. A single worker lets the context's threads help. Where a call is spread elsewhere (over OpenMP's
// threads, to a device, over a hybrid), a worker collects stripes of kBatchBytes and codes them in one call: a device
// has enough to do, and its work can be shared.
struct Division {
  unsigned worker_count;
  std::uint64_t batch_stripes;  // that a worker has in its buffers at once
  std::uint64_t piece_bytes;    // of each shard, coded in one call at most; UINT64_MAX: a batch in one call
};
constexpr std::uint64_t kBatchBytes = 8u << 20;  // of data and parity; within the bound of worker_count_for

Division divide(const tandem_context *context, std::uint32_t asked_count, const SetHeader &header,
                std::uint64_t stripe_count);

}  // namespace tandem::files
