// SPDX-License-Identifier: Apache-2.0
#include "files/workers.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/affinity.hpp"
#include "base/gate.hpp"
#include "base/options.hpp"

namespace tandem::files {
namespace {

constexpr std::uint64_t kOne = 1;

tandem_context_info query(const tandem_context *context) {
  auto info = base::sized<tandem_context_info>();
  check(tandem_context_query(context, &info));
  return info;
}

}  // namespace

void run_workers(const tandem_context *context, unsigned thread_count, base::Meter &meter, Turns *turns,
                 const std::function<void(std::size_t)> &work) {
  if (turns != nullptr) turns->restart();
  base::Crew(thread_count, base::cores_for_workers(context)).run(thread_count, work, meter);
}

bool Turns::enter(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  constexpr std::chrono::milliseconds kBetweenLooks{100};
  while (turn_ != turn && !meter_.stopped()) changed_.wait_for(lock, kBetweenLooks);
  return turn_ == turn && !meter_.stopped();
}

void Turns::leave(std::uint64_t turn) {
  const std::lock_guard lock(mutex_);
  turn_ = turn + 1;
  changed_.notify_all();
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
  if (stays_on_own_threads && division.worker_count > 1 && !is_wide) {
    constexpr std::uint64_t kInlineBytes = 256 << 10;  // tandem_context_create: what moves less stays on the thread
    const std::uint64_t most_bytes = (kInlineBytes - 1) / header.shard_count();
    division.piece_bytes = std::max(most_bytes / kGranularityBytes, kOne) * kGranularityBytes;
  }
  return division;
}

}  // namespace tandem::files
