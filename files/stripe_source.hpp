// Brings blocks of a stripe into memory: reads those that are intact and computes the others from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "files/handles.hpp"
#include "files/set_reader.hpp"
#include "files/workers.hpp"

namespace tandem::files {

class StripeSource {
 public:
  StripeSource(tandem_context *context, const tandem_codec *codec, const FoundSet &set)
      : context_(context), codec_(codec), header_(set.header), reader_(set, base::timeline_of(context)) {}

  struct Stripe {
    std::vector<std::uint8_t> present;  // by shard: read, and intact
    std::vector<Hash128> hashes;        // by shard: of the payloads of these
    std::uint32_t good_count = 0;       // of these
    bool complete = false;              // every wanted block is in the buffers
  };

  // wanted: by shard, non-zero. Reads these and, where one is missing, others until there are enough. A computed block
  // has no checksum behind it yet. Any thread.
  Stripe bring(std::uint64_t stripe, const std::vector<std::uint8_t> &wanted, const ShardBuffers &buffers);

  // The same, and throws NOT_RECOVERABLE where it is not complete.
  Stripe demand(std::uint64_t stripe, const std::vector<std::uint8_t> &wanted, const ShardBuffers &buffers);

  // So many threads are going to call bring().
  void set_caller_count(unsigned count) { piece_bytes_ = piece_bytes(context_, count, header_.shard_count()); }

  SetReader &reader() { return reader_; }
  std::uint64_t computed_count() const { return computed_count_.load(); }
  double coding_seconds() const { return coding_nanoseconds_.load() * 1e-9; }

 private:
  tandem_context *context_;
  const tandem_codec *codec_;
  const SetHeader header_;
  SetReader reader_;
  std::uint64_t piece_bytes_ = UINT64_MAX;
  std::atomic<std::uint64_t> computed_count_{0}, coding_nanoseconds_{0};
};

}  // namespace tandem::files
