// SPDX-License-Identifier: Apache-2.0
// Tuning values for devices without measurements.
#pragma once

#include "device/kernel_text.hpp"

namespace tandem::device {

enum class Vendor { nvidia, amd, intel, other, cpu };  // cpu: an OpenCL device of that type

// For a matrix of this shape.
KernelTuning built_in_tuning(Vendor vendor, unsigned rows, unsigned columns) noexcept;

// Whether technique transform should be faster on CUDA than a compiled matrix of this shape. From these sizes on the
// matrix has at least 1.4 times as many operations. That is counted, and timed nowhere. At most 57 outputs lie in eight
// groups wherever they begin, which is what a kernel takes (kMostTransformGroups).
constexpr bool built_in_transforms(unsigned rows, unsigned columns) noexcept {
  return rows >= 16 && rows <= 57 && columns >= 16;
}

}  // namespace tandem::device
