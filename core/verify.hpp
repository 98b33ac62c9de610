// From per-output mismatches to what a person wants to know: which shard is bad.
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

// Reads what a verify plan's run recorded (one Mismatch an output). Where a mismatch exists, looks for the one shard
// whose damage explains them all: the syndrome of the first bad column names a candidate, and a second pass over the
// shards, which leaves the candidate out, confirms or drops it. `task`: the one that ran. Throws Error.
VerifyReport explain(const Plan &plan, const Task &task, Control &control);

// Fills task.ranges, unless the backend did: compares once more, tile by tile from the first difference to the last,
// and again in small tiles where something was found. So each byte is read three times in all at the most, and where
// nothing was found none a second time. Throws Error.
void find_ranges(const Plan &plan, const Task &task, Control &control);

}  // namespace tandem::core
