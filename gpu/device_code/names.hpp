// Names of the kernels that are compiled ahead of time: written by whoever builds the image, looked up by the backend.
#pragma once

#include <array>
#include <string>

#include "device/kernel_text.hpp"

namespace tandem::gpu {

// What the image has kernels of technique tables for; any other element size goes through NVRTC.
inline constexpr std::array<unsigned, 3> kTablesElementBytes = {4, 8, 16};
inline constexpr std::array<core::Mode, 3> kTablesModes = {core::Mode::assign, core::Mode::accumulate,
                                                           core::Mode::compare};
inline constexpr std::array<device::Access, 2> kTablesAccesses = {device::Access::aligned, device::Access::shifted};

// "tandem_tables_assign_aligned_16".
inline std::string tables_kernel_name(core::Mode mode, device::Access access, unsigned element_bytes) {
  const char *const mode_name = mode == core::Mode::assign       ? "assign"
                                : mode == core::Mode::accumulate ? "accumulate"
                                                                 : "compare";
  return std::string("tandem_tables_") + mode_name + (access == device::Access::aligned ? "_aligned_" : "_shifted_") +
         std::to_string(element_bytes);
}

// The generator's input for such a kernel. elements_per_item is 1; the work-group's size is the launch's.
inline device::KernelSpec tables_kernel_spec(core::Mode mode, device::Access access, unsigned element_bytes) {
  device::KernelSpec spec;
  spec.dialect = device::Dialect::cuda_c;
  spec.technique = device::Technique::tables;
  spec.mode = mode;
  spec.access = access;
  spec.binding = device::Binding::arguments;
  spec.tuning.element_bytes = element_bytes;
  spec.name = tables_kernel_name(mode, access, element_bytes);
  return spec;
}

}  // namespace tandem::gpu
