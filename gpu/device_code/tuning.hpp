// What a compiled kernel is made with where nothing was measured: read off the compile table (docs/CUDA.md).
#pragma once

#include <algorithm>

#include "device/kernel_text.hpp"

namespace tandem::gpu {

// rows: outputs of the matrix. Accumulators take 8 * rows_per_pass * element_bytes / 4 registers, of which a thread has
// 255; beyond about 128 too few threads fit a multiprocessor to keep its memory busy.
inline device::KernelTuning built_in_tuning(unsigned rows) {
  device::KernelTuning tuning;
  tuning.element_bytes = rows <= 2 ? 16 : rows <= 4 ? 8 : 4;
  tuning.rows_per_pass = rows <= 10 ? std::max(rows, 1u) : 8;
  tuning.local = {128, 1, 1};
  return tuning;
}

}  // namespace tandem::gpu
