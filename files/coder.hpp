// SPDX-License-Identifier: Apache-2.0
// Codes the stripes in a worker's buffers: several in one call; one alone in pieces (divide() in workers.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tandem/tandem.h"

namespace tandem::files {

// Any thread.
class Coder {
 public:
  Coder(tandem_context *context, std::uint32_t k, std::uint32_t m) : context_(context), k_(k), m_(m) {}

  // Encodes stripes; uses `shards` and `shard_bytes` of each. Throws Error.
  //   piece_bytes   of each shard, coded in one call at most where there is one stripe
  void encode(const tandem_codec *codec, std::span<const tandem_stripe> stripes, std::uint64_t piece_bytes);
  // Decodes stripes; uses also `present` of each. Afterwards its `status` is OK or NOT_RECOVERABLE. Throws Error for
  // any other status.
  void decode(const tandem_codec *codec, std::span<tandem_stripe> stripes, std::uint64_t piece_bytes);

  double seconds() const { return static_cast<double>(nanoseconds_.load()) * 1e-9; }

 private:
  tandem_context *context_;
  std::uint32_t k_, m_;
  std::atomic<std::uint64_t> nanoseconds_{0};
};

}  // namespace tandem::files
