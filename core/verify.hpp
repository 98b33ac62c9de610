// SPDX-License-Identifier: Apache-2.0
// From mismatches of each output to the answer that people want: which shard is bad.
#pragma once

#include "core/plan.hpp"

namespace tandem::core {

struct VerifyReport {
  std::uint32_t bad_parity_count = 0;
  std::uint64_t mismatch_byte_count = 0;
  std::uint64_t first_mismatch_bytes = 0;
  std::uint32_t first_bad_shard = TANDEM_SHARD_NONE;
  std::uint32_t suspect_shard = TANDEM_SHARD_NONE;
};

// Reads the records of a verify plan's run (one Mismatch for each output). If there is a mismatch, looks for the one
// shard that explains them all by its damage. The syndrome of the first bad column names a candidate. A second pass
// over the shards, without the candidate, confirms or drops it. `task`: the one that ran. Throws Error.
VerifyReport explain(const Plan &plan, const Task &task, Control &control);

// Fills task.ranges, unless the backend did. Compares once more, tile by tile, from the first difference to the last;
// tiles with differences again in small tiles. So each byte is read three times at most, and only once if nothing
// differs. Throws Error.
void find_ranges(const Plan &plan, const Task &task, Control &control);

}  // namespace tandem::core
