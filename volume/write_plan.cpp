// SPDX-License-Identifier: Apache-2.0
#include "volume/write_plan.hpp"

#include <algorithm>

namespace tandem::volume {

WritePlan plan_write(std::span<const WriteColumn> columns, std::uint32_t m, bool delayed) {
  const auto count = [&](bool WriteColumn::*flag) {
    return static_cast<std::uint32_t>(std::ranges::count(columns, true, flag));
  };
  const std::uint32_t to_modify = count(&WriteColumn::written_old), to_reconstruct = count(&WriteColumn::remaining_old);
  const std::uint32_t old_parities = to_modify + to_reconstruct > 0 ? m : 0;  // else they are zeros
  WritePlan plan{.way = TANDEM_VOLUME_DELAY, .data_writes = count(&WriteColumn::written)};
  if (delayed) return plan;
  plan.parity_writes = m;
  if (to_reconstruct <= to_modify + old_parities) {
    plan.data_reads = to_reconstruct;
    plan.way = count(&WriteColumn::remaining) == 0 ? TANDEM_VOLUME_FULL_STRIPE : TANDEM_VOLUME_RECONSTRUCT;
  } else {
    plan.data_reads = to_modify;
    plan.parity_reads = old_parities;
    plan.way = to_modify > 0 ? TANDEM_VOLUME_MODIFY : TANDEM_VOLUME_AVOID;
  }
  return plan;
}

}  // namespace tandem::volume
