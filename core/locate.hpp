// SPDX-License-Identifier: Apache-2.0
// Finds damaged shards of a stripe from the parity alone: no shard has a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/backend.hpp"
#include "core/codec.hpp"

namespace tandem::core {

// A damaged part of one shard. With TANDEM_SHARD_NONE: a part of the stripe that is beyond the guarantee.
struct DamageRange {
  std::uint32_t shard;
  std::uint64_t begin_bytes,
      end_bytes;             // both ends are damaged; up to kDamageGapBytes between two damaged bytes are not
  std::uint64_t byte_count;  // damaged ones
};
inline constexpr std::uint64_t kDamageGapBytes = 4096;

struct DamageReport {
  bool is_consistent = true;
  std::vector<std::uint64_t> damaged_bytes;  // of each shard
  std::uint64_t beyond_byte_count = 0;       // columns that no damage within the guarantee explains
  std::vector<DamageRange> ranges;           // by shard, then begin
  bool is_repaired = false;
};

// How many damaged shards of one byte column can be named if absent_count shards are absent: half of the remaining
// checks. Throws Error: UNSUPPORTED for codes that promise no such number or would take too long, and in GF(2^16);
// NOT_RECOVERABLE if no check remains.
unsigned most_damaged_shards(const Codec &codec, unsigned absent_count);

// The shards to compare, for a given set of present shards: all but k of them as outputs of those k. Throws Error
// (NOT_RECOVERABLE) if the present shards do not determine the stripe.
Application checks_of(const Codec &codec, const ShardSet &present);

// Compares. If something differs, finds the smallest set of shards that explains each column by its damage. `checks` as
// checks_of, in the backend's form. shards: of the stripe; absent ones are not read. repair: if every column is
// explained, damaged bytes are repaired and everything is compared again. Throws Error, also DAMAGED if the shards
// change meanwhile.
DamageReport locate_damage(Backend &backend, const Codec &codec, const Application &checks, const Prepared &prepared,
                           unsigned most_shards, std::byte *const *shards, std::uint64_t shard_bytes, bool repair,
                           Control &control);

}  // namespace tandem::core
