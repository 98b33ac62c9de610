// SPDX-License-Identifier: Apache-2.0
// Tuning values for devices without measurements.
#pragma once

#include "device/kernel_text.hpp"

namespace tandem::device {

enum class Vendor { nvidia, amd, intel, other, cpu };  // cpu: an OpenCL device of that type

// For a matrix of this shape.
KernelTuning built_in_tuning(Vendor vendor, unsigned rows, unsigned columns) noexcept;

// Whether technique transform should be faster than a compiled matrix of this shape: on AMD's GPUs, and on NVIDIA's by
// CUDA. From these sizes on the matrix has at least 1.4 times as many operations (bench/results/compile). A GPU of
// compute capability 10.0 is bound by its ALU from 32+8 on, where the matrix has 1.12 times as many. All that is
// counted, and timed nowhere. Intel's compiler spills it, or ends. At most 57 outputs lie in eight groups wherever they
// begin, which is what a kernel takes (kMostTransformGroups).
constexpr bool built_in_transforms(Dialect dialect, Vendor vendor, unsigned architecture, unsigned rows,
                                   unsigned columns) noexcept {
  if (rows > 57) return false;
  if (dialect == Dialect::cuda_c && architecture >= 100 && rows >= 8 && columns >= 32) return true;
  return rows >= 16 && (dialect == Dialect::cuda_c ? columns >= 16 : vendor == Vendor::amd && columns >= 32);
}

}  // namespace tandem::device
