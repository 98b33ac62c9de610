// SPDX-License-Identifier: Apache-2.0
// Brings blocks of stripes into memory: reads intact ones and computes the others from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "files/coder.hpp"
#include "files/handles.hpp"
#include "files/set_reader.hpp"

namespace tandem::files {

class StripeSource {
 public:
  StripeSource(tandem_context *context, const tandem_codec *codec, const FoundSet &set)
      : codec_(codec),
        header_(set.header),
        timeline_(base::timeline_of(context)),
        reader_(set, timeline_),
        coder_(context, set.header.k, set.header.m) {}

  struct Stripe {
    std::uint64_t number;
    std::vector<std::uint8_t> wanted;  // by shard, non-zero
    const ShardBuffers *buffers;
    // bring() fills in:
    std::vector<std::uint8_t> present{};  // by shard: read and intact, or padding, which is known
    std::vector<Hash128> hashes{};        // by shard: of the payloads of these
    std::uint32_t good_count = 0;         // of these
    bool complete = false;                // every wanted block is in the buffers
  };

  // Reads the wanted blocks. If one is missing, reads others until there are enough. Then computes the missing ones,
  // for all stripes in one call. A computed block has no checksum behind it yet. Any thread.
  void bring(std::span<Stripe> stripes);

  // The same. Throws NOT_RECOVERABLE if a stripe is not complete.
  void demand(std::span<Stripe> stripes);

  // Adds the hashes of computed data blocks, for a complete stripe with all data shards wanted. Blocks that were read
  // have been hashed already. Any thread.
  void hash_computed(Stripe &stripe) const;

  // For a single stripe (workers.hpp).
  void set_piece_bytes(std::uint64_t piece_bytes) { piece_bytes_ = piece_bytes; }

  SetReader &reader() { return reader_; }
  std::uint64_t computed_count() const { return computed_count_.load(); }
  double coding_seconds() const { return coder_.seconds(); }

 private:
  // Stripes with these blocks present, but not all wanted ones.
  struct Incomplete {
    Stripe *stripe;
    std::uint32_t needed_count;       // good blocks before the next attempt
    std::uint32_t next = 0;           // shard to be read next
    std::vector<void *> shards = {};  // as tandem_decode takes them
  };

  bool read_block(Stripe &stripe, std::uint32_t shard);
  bool read_enough(Incomplete &incomplete);
  [[noreturn]] void fail_incomplete(const Stripe &stripe) const;

  const tandem_codec *codec_;
  const SetHeader header_;
  base::Timeline *const timeline_;  // null: none is asked for
  SetReader reader_;
  Coder coder_;
  std::uint64_t piece_bytes_ = UINT64_MAX;
  std::atomic<std::uint64_t> computed_count_{0};
};

}  // namespace tandem::files
