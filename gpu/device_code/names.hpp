// SPDX-License-Identifier: Apache-2.0
// Names of the kernels that are compiled ahead of time. The build of the image writes them, the backend looks them up.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "device/kernel_text.hpp"

namespace tandem::gpu {

// The image has kernels of technique tables for these element sizes; NVRTC compiles others.
inline constexpr std::array<unsigned, 3> kTablesElementBytes = {4, 8, 16};

// "tandem_tables_assign_aligned_16"; "tandem_tables_batch_aligned_16" is the one with Binding::table.
inline std::string tables_kernel_name(const device::KernelSpec &spec) {
  const char *const mode_name = spec.binding == device::Binding::table ? "batch"
                                : spec.mode == core::Mode::assign      ? "assign"
                                : spec.mode == core::Mode::accumulate  ? "accumulate"
                                                                       : "compare";
  return std::string("tandem_tables_") + mode_name +
         (spec.access == device::Access::aligned ? "_aligned_" : "_shifted_") +
         std::to_string(spec.tuning.element_bytes);
}

// The generator's input for each kernel. elements_per_item is 1; the work-group's size is the launch's.
inline std::vector<device::KernelSpec> tables_kernels() {
  using device::Binding;
  std::vector<device::KernelSpec> list;
  for (const auto &[mode, binding] : {std::pair{core::Mode::assign, Binding::arguments},
                                      {core::Mode::accumulate, Binding::arguments},
                                      {core::Mode::compare, Binding::arguments},
                                      {core::Mode::assign, Binding::table}}) {
    for (const device::Access access : {device::Access::aligned, device::Access::shifted}) {
      for (const unsigned element_bytes : kTablesElementBytes) {
        device::KernelSpec &spec = list.emplace_back();
        spec.dialect = device::Dialect::cuda_c;
        spec.technique = device::Technique::tables;
        spec.mode = mode;
        spec.access = access;
        spec.binding = binding;
        spec.tuning.element_bytes = element_bytes;
        spec.name = tables_kernel_name(spec);
      }
    }
  }
  return list;
}

}  // namespace tandem::gpu
