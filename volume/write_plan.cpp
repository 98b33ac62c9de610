// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "tandem/tools.h"
#include "tandem/volume.h"

namespace {

tandem_status refuse(const char *why) { return tandem_set_last_error(TANDEM_ERROR_INVALID_ARGUMENT, why); }

bool is_consistent(const tandem_volume_column &column) {
  return (column.written || !column.written_old) && (column.remaining || !column.remaining_old);
}

}  // namespace

extern "C" tandem_status tandem_volume_plan_write(uint32_t k, uint32_t m, const tandem_volume_column *columns,
                                                  int32_t delayed, uint8_t *reads, tandem_volume_write_plan *plan) {
  constexpr std::uint64_t kMostColumns = 65536;
  if (columns == nullptr) return refuse("columns is NULL");
  if (plan == nullptr) return refuse("plan is NULL");
  if (k == 0 || m == 0) return refuse("k and m must be at least 1");
  if (std::uint64_t{k} + m > kMostColumns) return tandem_set_last_error(TANDEM_ERROR_TOO_LARGE, "k + m is above 65536");
  const auto count = [&](auto &&wanted) {
    return static_cast<std::uint32_t>(std::count_if(columns, columns + k, wanted));
  };
  const auto written = [](const tandem_volume_column &column) { return column.written != 0; };
  const auto written_old = [](const tandem_volume_column &column) { return column.written_old != 0; };
  const auto remaining_old = [](const tandem_volume_column &column) { return column.remaining_old != 0; };

  tandem_volume_write_plan found{};
  found.data_writes = count(written);
  if (found.data_writes == 0) return refuse("the write covers no column");
  if (!std::all_of(columns, columns + k, is_consistent))
    return refuse("a column has written_old without written, or remaining_old without remaining");
  const std::uint32_t to_modify = count(written_old), to_reconstruct = count(remaining_old);
  const std::uint32_t old_parities = to_modify + to_reconstruct > 0 ? m : 0;  // else they are zeros
  if (delayed) {
    found.way = TANDEM_VOLUME_DELAY;
  } else {
    found.parity_writes = m;
    if (to_reconstruct <= to_modify + old_parities) {
      found.data_reads = to_reconstruct;
      const bool all = std::none_of(columns, columns + k, [](const auto &column) { return column.remaining != 0; });
      found.way = all ? TANDEM_VOLUME_FULL_STRIPE : TANDEM_VOLUME_RECONSTRUCT;
    } else {
      found.data_reads = to_modify;
      found.parity_reads = old_parities;
      found.way = to_modify > 0 ? TANDEM_VOLUME_MODIFY : TANDEM_VOLUME_AVOID;
    }
  }
  if (reads)
    for (std::uint32_t i = 0; i < k; ++i)
      reads[i] = (found.way == TANDEM_VOLUME_MODIFY && columns[i].written_old) ||
                 (found.way == TANDEM_VOLUME_RECONSTRUCT && columns[i].remaining_old);
  *plan = found;
  return TANDEM_OK;
}
