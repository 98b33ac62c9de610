// SPDX-License-Identifier: Apache-2.0
#include "files/coder.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/gate.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

class Timed {
 public:
  explicit Timed(std::atomic<std::uint64_t> &nanoseconds) : nanoseconds_(nanoseconds) {}
  ~Timed() {
    nanoseconds_.fetch_add(static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - begin_).count()),
                           std::memory_order_relaxed);
  }
  Timed(const Timed &) = delete;
  Timed &operator=(const Timed &) = delete;

 private:
  std::atomic<std::uint64_t> &nanoseconds_;
  Clock::time_point begin_ = Clock::now();
};

// Calls code(shards, bytes) with each piece of the stripe until one fails.
template <class Code>
tandem_status code_in_pieces(const tandem_stripe &stripe, std::uint32_t shard_count, std::uint64_t piece_bytes,
                             Code code) {
  std::vector<void *> shards(shard_count);
  for (std::uint64_t offset = 0; offset < stripe.shard_bytes;) {
    const std::uint64_t bytes = std::min(piece_bytes, stripe.shard_bytes - offset);
    for (std::uint32_t i = 0; i < shard_count; ++i)
      shards[i] = stripe.shards[i] != nullptr ? static_cast<std::byte *>(stripe.shards[i]) + offset : nullptr;
    if (const tandem_status status = code(shards.data(), bytes); status != TANDEM_OK) return status;
    offset += bytes;
  }
  return TANDEM_OK;
}

}  // namespace

void Coder::encode(const tandem_codec *codec, std::span<const tandem_stripe> stripes, std::uint64_t piece_bytes) {
  const Timed timed(nanoseconds_);
  if (m_ == 0) return;
  if (stripes.size() > 1)
    return base::check(tandem_encode_stripes(context_, codec, stripes.data(), stripes.size(), sizeof stripes[0]));
  for (const tandem_stripe &stripe : stripes)
    base::check(code_in_pieces(stripe, k_ + m_, piece_bytes, [&](void **shards, std::uint64_t bytes) {
      return tandem_encode(context_, codec, shards, shards + k_, bytes);
    }));
}

void Coder::decode(const tandem_codec *codec, std::span<tandem_stripe> stripes, std::uint64_t piece_bytes) {
  const Timed timed(nanoseconds_);
  if (stripes.size() > 1) {
    const tandem_status first =
        tandem_decode_stripes(context_, codec, stripes.data(), stripes.size(), sizeof stripes[0]);
    if (first != TANDEM_ERROR_NOT_RECOVERABLE) base::check(first);
    for (const tandem_stripe &stripe : stripes)
      if (stripe.status != TANDEM_OK && stripe.status != TANDEM_ERROR_NOT_RECOVERABLE)
        base::fail(stripe.status, "a stripe could not be decoded");  // the last message is of an earlier stripe
    return;
  }
  for (tandem_stripe &stripe : stripes) {
    stripe.status = code_in_pieces(stripe, k_ + m_, piece_bytes, [&](void **shards, std::uint64_t bytes) {
      return tandem_decode(context_, codec, shards, stripe.present, bytes);
    });
    if (stripe.status != TANDEM_ERROR_NOT_RECOVERABLE) base::check(stripe.status);
  }
}

}  // namespace tandem::files
