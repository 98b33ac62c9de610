// SPDX-License-Identifier: Apache-2.0
// Whether a stripe can be recovered from some of its blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "files/handles.hpp"

namespace tandem::files {

// Whether there is such a code; without allow_non_mds, one of which any k blocks are enough.
bool has_code(const SetHeader &header, bool allow_non_mds);
// Whether any k blocks are enough. False also for a code that does not exist.
inline bool any_k_suffice(const SetHeader &header) { return has_code(header, false); }
// Tells whether these shards are enough, by rank, if their blocks are intact. present: by shard.
bool shards_suffice(const SetHeader &header, std::vector<std::uint8_t> present);

class Recoverability {
 public:
  Recoverability(tandem_context *context, const SetHeader &header);

  const tandem_codec *codec() const { return codec_.get(); }
  // present: by shard, non-zero where the block is intact. Any thread.
  bool holds(const std::vector<std::uint8_t> &present) const;

 private:
  tandem_context *context_;
  std::uint32_t k_, shard_count_;
  OwnedCodec codec_;
  bool mds_;  // any k blocks will do
};

}  // namespace tandem::files
