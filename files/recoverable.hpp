// Can a stripe be recovered from these of its blocks?
#pragma once

#include <cstdint>
#include <vector>

#include "files/handles.hpp"

namespace tandem::files {

class Recoverability {
 public:
  Recoverability(tandem_context *context, const SetHeader &header);

  const tandem_codec *codec() const { return codec_.get(); }
  // present: by shard, non-zero where the block is intact. Any thread.
  bool holds(const std::vector<std::uint8_t> &present) const;

 private:
  tandem_context *context_;
  std::uint32_t k_, shard_count_;
  Codec codec_;
  bool mds_;  // any k blocks will do
};

}  // namespace tandem::files
