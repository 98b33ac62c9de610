// SPDX-License-Identifier: Apache-2.0
// Codes with local groups (docs/matrices.md). The data shards lie in groups, and each group has a parity shard of its
// own. Global parity shards depend on all data. Such a code is not MDS: a lost shard is rebuilt from its group alone.
#pragma once

#include <algorithm>

#include "core/matrix.hpp"

namespace tandem::core {

// The members of each group. Groups are runs of data shards; the first k % group_count have one shard more than the
// rest.
struct LocalGroups {
  unsigned k, group_count, global_count;
  bool are_globals_first;  // among the parity shards

  unsigned begin(unsigned group) const noexcept { return group * (k / group_count) + std::min(group, k % group_count); }
  unsigned end(unsigned group) const noexcept { return begin(group + 1); }
  unsigned local_parity(unsigned group) const noexcept { return k + (are_globals_first ? global_count : 0) + group; }
  unsigned global_parity(unsigned i) const noexcept { return k + (are_globals_first ? 0 : group_count) + i; }
  bool is_global(unsigned shard) const noexcept {
    return shard >= k && shard - global_parity(0) < global_count;  // wraps round below it
  }
  // The group of a data shard or a local parity shard.
  unsigned group_of(unsigned shard) const noexcept {
    if (shard >= k) return shard - local_parity(0);
    const unsigned size = k / group_count, longer = k % group_count * (size + 1);
    return shard < longer ? shard / (size + 1) : k % group_count + (shard - longer) / size;
  }
};

// The parity rows of two presets (core/presets.hpp). Throw Error (INVALID_ARGUMENT), with the limit, if the formula has
// no such code. Any global_count + 1 losses can be rebuilt: merging the local rows gives global_count + 1 rows of an
// MDS code (Huang, Chen and Li, Pyramid Codes, 2007).
Matrix lrc_azure(const LocalGroups &groups);
Matrix liberasurecode_isal_lrc(const LocalGroups &groups);

}  // namespace tandem::core
