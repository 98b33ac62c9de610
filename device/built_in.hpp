// Tuning values for devices without measurements.
#pragma once

#include "device/kernel_text.hpp"

namespace tandem::device {

enum class Vendor { nvidia, amd, intel, other, cpu };  // cpu: an OpenCL device of that type

// For a matrix of this shape.
KernelTuning built_in_tuning(Vendor vendor, unsigned rows, unsigned columns) noexcept;

}  // namespace tandem::device
