// SPDX-License-Identifier: Apache-2.0
#include "files/workers.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include "base/affinity.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/signals.hpp"

namespace tandem::files {
namespace {

constexpr std::uint64_t kOne = 1;
constexpr auto kReportInterval = std::chrono::milliseconds(100);

tandem_context_info query(const tandem_context *context) {
  auto info = base::sized<tandem_context_info>();
  check(tandem_context_query(context, &info));
  return info;
}

}  // namespace

void Workers::run(unsigned thread_count, const std::function<void(unsigned)> &work) {
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  turn_ = 0;
  const std::span<const unsigned> cores = base::cores_for_workers(context_);
  {
    const base::SignalsBlocked blocked;
    for (unsigned i = 0; i < thread_count; ++i) {
      {
        const std::lock_guard lock(mutex_);
        ++running_count_;
      }
      try {
        threads.emplace_back([this, &work, cores, i] {
          if (!cores.empty()) base::pin_thread(pthread_self(), cores[i % cores.size()]);
          try {
            work(i);
          } catch (...) {
            stop_with(std::current_exception());
          }
          const std::lock_guard lock(mutex_);
          --running_count_;
          worker_ended_.notify_all();
        });
      } catch (const std::exception &) {
        const std::lock_guard lock(mutex_);
        --running_count_;
        break;  // fewer threads do the same work
      }
    }
  }
  if (threads.empty()) fail(TANDEM_ERROR_OUT_OF_MEMORY, "cannot start a thread");

  std::unique_lock lock(mutex_);
  while (running_count_ != 0) {
    if (worker_ended_.wait_for(lock, kReportInterval) != std::cv_status::timeout) continue;
    lock.unlock();
    report();
    lock.lock();
  }
  lock.unlock();
  for (std::thread &thread : threads) thread.join();
  if (error_) std::rethrow_exception(error_);
  if (stopped_.load()) fail(TANDEM_ERROR_CANCELLED, "cancelled");
  check_cancelled();
}

void Workers::add_done(std::uint64_t bytes) {
  const std::uint64_t done = done_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  pace_.wait(done, [this] { return stopped_.load(std::memory_order_relaxed); });
}

void Workers::check_cancelled() {
  report();
  if (error_) std::rethrow_exception(error_);
}

void Workers::report() {
  if (progress_ == nullptr) return;
  if (progress_(progress_user_, done_bytes_.load(std::memory_order_relaxed), total_bytes_) != 0)
    stop_with(std::make_exception_ptr(Error(TANDEM_ERROR_CANCELLED, "cancelled")));
}

void Workers::stop_with(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  stopped_.store(true);
  turn_changed_.notify_all();
}

bool Workers::enter(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  turn_changed_.wait(lock, [&] { return turn_ == turn || stopped_.load(); });
  return !stopped_.load();
}

void Workers::leave(std::uint64_t turn) {
  const std::lock_guard lock(mutex_);
  turn_ = turn + 1;
  turn_changed_.notify_all();
}

unsigned worker_count_for(const tandem_context *context, std::uint32_t asked_count, std::uint64_t stripe_bytes,
                          std::uint64_t stripe_count) {
  std::uint64_t count = asked_count;
  if (count == 0) count = query(context).caller_count;
  constexpr std::uint64_t kMemoryBytes = 256u << 20, kMemoryPerThreadBytes = 64u << 20;
  if (stripe_bytes > kMemoryPerThreadBytes)
    count = std::min(count, kMemoryBytes / (stripe_bytes - kMemoryPerThreadBytes));
  count = std::min({count, stripe_count, std::uint64_t{kMaxThreadCount}});
  return static_cast<unsigned>(std::max<std::uint64_t>(count, 1));
}

Division divide(const tandem_context *context, std::uint32_t asked_count, const SetHeader &header,
                std::uint64_t stripe_count) {
  constexpr std::uint64_t kGranularityBytes = 64;
  const tandem_context_info info = query(context);
  const std::string_view executor = info.executor;
  const bool stays_on_own_threads = executor == "pthread" || executor == "serial";
  const std::uint64_t stripe_bytes = std::uint64_t{header.shard_count()} * header.block_bytes;
  Division division{.worker_count = 1, .batch_stripes = 1, .piece_bytes = UINT64_MAX};
  if (!stays_on_own_threads) {
    // A short file is not one batch, so that some workers read and write while others wait for the device.
    const std::uint64_t callers = std::max(asked_count != 0 ? asked_count : info.caller_count, 1u);
    division.batch_stripes = std::max(std::min(kBatchBytes / stripe_bytes, stripe_count / callers), kOne);
  }
  const std::uint64_t batch_count =
      stripe_count / division.batch_stripes + (stripe_count % division.batch_stripes != 0 ? 1 : 0);
  division.worker_count = worker_count_for(context, asked_count, division.batch_stripes * stripe_bytes, batch_count);
  // The pieces of a wide stripe would be shorter than its transform's lanes: coding 3000+200 took 7 times as long.
  const bool is_wide = header.shard_count() > kNarrowShardCount;
  if (stays_on_own_threads && division.worker_count > 1 && info.inline_bytes != 0 && !is_wide) {
    const std::uint64_t most_bytes = (info.inline_bytes - 1) / header.shard_count();
    division.piece_bytes = std::max(most_bytes / kGranularityBytes, kOne) * kGranularityBytes;
  }
  return division;
}

}  // namespace tandem::files
