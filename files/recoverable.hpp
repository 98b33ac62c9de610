// Can a stripe be recovered from these of its blocks?
#pragma once

#include <cstdint>
#include <vector>

#include "files/handles.hpp"

namespace tandem::files {

// Any k blocks will do. False also for a code that there is not.
bool any_k_suffice(const SetHeader &header);
// By rank: what these shards are enough for, if their blocks are intact. present: by shard.
bool shards_suffice(const SetHeader &header, const std::vector<std::uint8_t> &present);

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
