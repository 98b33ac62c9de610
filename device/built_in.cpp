// SPDX-License-Identifier: Apache-2.0
#include "device/built_in.hpp"

#include <algorithm>

namespace tandem::device {

// Accumulators take 8 * rows_per_pass * element_bytes / 4 registers of a work-item. The compiler also loads columns
// ahead, and more of them if there are more. NVIDIA: 255 registers. Beyond about 128, too few threads fit a
// multiprocessor to keep its memory busy (bench/results/compile). AMD: by clang 14 for gfx1030 and gfx90a the same
// values take 41 to 110 of 256 registers; 64+2 spills at 16 bytes. Intel: a thread has half as many for each of 16
// work-items. None was timed.
KernelTuning built_in_tuning(Vendor vendor, unsigned rows, unsigned columns) noexcept {
  if (vendor == Vendor::cpu) return {64, 1, 4, {64, 1, 1}};  // measured on PoCL: docs/internals/GENERATED.md
  if (vendor == Vendor::other) return {8, 1, 4, {256, 1, 1}};
  const unsigned part = vendor == Vendor::intel ? 2 : 1;  // half of NVIDIA's registers
  KernelTuning tuning;
  tuning.element_bytes = 16;
  while (tuning.element_bytes > 4 &&
         (rows * tuning.element_bytes > 32 / part || rows * columns * tuning.element_bytes > 512 / part))
    tuning.element_bytes /= 2;
  tuning.rows_per_pass = rows <= 10 / part ? std::max(rows, 1u) : 8 / part;
  tuning.local = {vendor == Vendor::nvidia ? 128u : 256u, 1, 1};
  return tuning;
}

}  // namespace tandem::device
