// SPDX-License-Identifier: Apache-2.0
// Threads of one call. Each takes one stripe after the other through read, check, code and write. So steps of different
// stripes overlap without queues. The calling thread reports progress meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/crew.hpp"
#include "files/format.hpp"
#include "tandem/files.h"

namespace tandem::files {

// Lets the workers of a run pass in order.
class Turns {
 public:
  explicit Turns(const base::Meter &meter) : meter_(meter) {}
  void restart() { turn_ = 0; }    // no worker runs
  bool enter(std::uint64_t turn);  // returns when turn - 1 has left; false when the meter has stopped
  void leave(std::uint64_t turn);

 private:
  const base::Meter &meter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;
};

// Runs work(0) ... work(thread_count - 1), each on a thread if so many can start, as base::Crew does with a meter. If
// the context pins its threads, each worker runs on one core, and so do the pages that it touches first.
//   turns   NULL, or what the workers pass in order: it begins anew
void run_workers(const tandem_context *context, unsigned thread_count, base::Meter &meter, Turns *turns,
                 const std::function<void(std::size_t)> &work);

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
