#include "files/stripe_source.hpp"

#include <fmt/format.h>

#include <chrono>

#include "files/error.hpp"

namespace tandem::files {

using Clock = std::chrono::steady_clock;

StripeSource::Stripe StripeSource::bring(std::uint64_t stripe, const std::vector<std::uint8_t> &wanted,
                                         const ShardBuffers &buffers) {
  const std::uint32_t shard_count = header_.shard_count();
  Stripe got;
  got.present.assign(shard_count, 0);
  got.hashes.resize(shard_count);
  const auto read = [&](std::uint32_t shard) {
    if (!reader_.has(shard) || !reader_.read_block(shard, stripe, buffers.at(shard), &got.hashes[shard])) return false;
    got.present[shard] = 1;
    ++got.good_count;
    return true;
  };
  std::uint64_t missing_count = 0;
  for (std::uint32_t shard = 0; shard < shard_count; ++shard)
    if (wanted[shard] != 0 && !read(shard)) ++missing_count;
  got.complete = missing_count == 0;
  if (got.complete) return got;

  std::vector<void *> shards(shard_count, nullptr);
  for (std::uint32_t next = 0, needed = header_.k;;) {
    for (; next < shard_count && got.good_count < needed; ++next)
      if (wanted[next] == 0) read(next);
    if (got.good_count < needed) return got;
    for (std::uint32_t shard = 0; shard < shard_count; ++shard)
      shards[shard] = wanted[shard] != 0 || got.present[shard] != 0 ? buffers.at(shard) : nullptr;
    const Clock::time_point coding = Clock::now();
    const std::uint64_t payload_bytes = header_.payload_bytes_of(stripe);
    std::vector<void *> moved(shard_count);
    const tandem_status status =
        code_in_pieces(piece_bytes_, payload_bytes, [&](std::uint64_t offset, std::uint64_t bytes) {
          for (std::uint32_t shard = 0; shard < shard_count; ++shard)
            moved[shard] = shards[shard] != nullptr ? static_cast<std::byte *>(shards[shard]) + offset : nullptr;
          return tandem_decode(context_, codec_, moved.data(), got.present.data(), bytes);
        });
    coding_nanoseconds_.fetch_add(static_cast<std::uint64_t>((Clock::now() - coding).count()),
                                  std::memory_order_relaxed);
    if (status == TANDEM_OK) break;
    if (status != TANDEM_ERROR_NOT_RECOVERABLE) check(status);
    needed = got.good_count + 1;  // with a matrix that is not MDS, k blocks need not be enough where more are
  }
  computed_count_.fetch_add(missing_count, std::memory_order_relaxed);
  got.complete = true;
  return got;
}

StripeSource::Stripe StripeSource::demand(std::uint64_t stripe, const std::vector<std::uint8_t> &wanted,
                                          const ShardBuffers &buffers) {
  Stripe got = bring(stripe, wanted, buffers);
  if (got.complete) return got;
  reader_.check_opened();
  std::uint32_t shard_count = 0;  // that there are
  for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard) shard_count += reader_.has(shard) ? 1 : 0;
  if (got.good_count >= header_.k)
    fail(
        TANDEM_ERROR_NOT_RECOVERABLE,
        fmt::format("stripe {} of {} has {} intact blocks, which do not determine the others: with this matrix not any "
                    "{} are enough",
                    stripe, header_.stripe_count(), got.good_count, header_.k));
  fail(
      TANDEM_ERROR_NOT_RECOVERABLE,
      fmt::format("stripe {} of {} has {} intact blocks, {} are needed: {} shards are missing and {} of its blocks are "
                  "damaged",
                  stripe, header_.stripe_count(), got.good_count, header_.k, header_.shard_count() - shard_count,
                  shard_count - got.good_count));
}

}  // namespace tandem::files
