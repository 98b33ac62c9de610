// SPDX-License-Identifier: Apache-2.0
// Which I/Os a write to one stripe costs. The volume and the simulator ask the same function.
#pragma once

#include <cstdint>
#include <span>

#include "tandem/volume.h"

namespace tandem::volume {

// The blocks of one data column in the parity range of a write.
struct WriteColumn {
  bool written;        // the write covers some blocks
  bool written_old;    // some of the covered blocks hold older data
  bool remaining;      // the write leaves some blocks unchanged
  bool remaining_old;  // some of the unchanged blocks hold data
};

struct WritePlan {
  tandem_volume_way_value way;
  std::uint32_t data_reads = 0, parity_reads = 0, data_writes = 0, parity_writes = 0;  // columns, each one I/O

  // MODIFY reads the written blocks of such a column, RECONSTRUCT the remaining ones.
  bool reads(const WriteColumn &column) const {
    return way == TANDEM_VOLUME_MODIFY ? column.written_old : way == TANDEM_VOLUME_RECONSTRUCT && column.remaining_old;
  }
};

// Chooses the way with the fewest reads. At least one column is written. Blocks without older data are zeros and are
// not read. For a system that does not track such blocks, set both _old flags wherever written and remaining are set.
// If RECONSTRUCT and MODIFY need the same number of reads, RECONSTRUCT is used: its result does not depend on the old
// parity. Parity is read from all m columns or from none.
//   delayed   the stripe is inside a window of delayed parity
WritePlan plan_write(std::span<const WriteColumn> columns, std::uint32_t m, bool delayed);

}  // namespace tandem::volume
