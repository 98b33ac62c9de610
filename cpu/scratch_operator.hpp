// SPDX-License-Identifier: Apache-2.0
// An operator that runs through scratch memory of the calling thread, in place of bands of kernel tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/backend.hpp"

namespace tandem::cpu {

class ScratchOperator {
 public:
  ScratchOperator() = default;
  ScratchOperator(const ScratchOperator &) = delete;
  ScratchOperator &operator=(const ScratchOperator &) = delete;
  virtual ~ScratchOperator() = default;

  virtual std::vector<core::Technique> techniques() const = 0;

  // Shorter ranges than this cost more for each byte.
  virtual std::size_t least_range_bytes() const noexcept = 0;

  // The scratch size of a call on length_bytes of each shard, aligned to a cache line. Never less for a longer length.
  virtual std::size_t scratch_bytes(core::Mode mode, std::uint64_t length_bytes) const noexcept = 0;

  // Applies the operator to a range of the task's shards. found: compare; as many records as there are outputs.
  virtual void apply(const core::Task &task, std::uint64_t offset_bytes, std::uint64_t length_bytes, std::byte *scratch,
                     core::Mismatch *found) const noexcept = 0;
};

}  // namespace tandem::cpu
