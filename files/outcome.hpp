// SPDX-License-Identifier: Apache-2.0
// The results of encode and decode.
#pragma once

#include <cstdint>

#include "files/format.hpp"

namespace tandem::files {

struct Outcome {
  SetHeader set;
  bool any_k_suffice = false;
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t bad_block_count = 0, rebuilt_block_count = 0;
  std::uint64_t hole_bytes = 0;  // decode with salvage
  std::uint32_t shards_read = 0, thread_count = 0;
  double seconds = 0, coding_seconds = 0;
};

}  // namespace tandem::files
