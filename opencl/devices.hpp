// SPDX-License-Identifier: Apache-2.0
// The devices that the drivers of this machine offer, and which of them can be used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "opencl/driver.hpp"

namespace tandem::opencl {

struct OpenclDevice final : device::Device {
  bool is_cpu() const noexcept { return (type & CL_DEVICE_TYPE_CPU) != 0; }
  const char *kind() const noexcept;

  const Driver *driver = nullptr;
  cl_device_id id = nullptr;
  cl_platform_id platform = nullptr;
  cl_device_type type = 0;
  std::string platform_name;
  std::uint64_t parameter_bytes = 0;
  unsigned base_alignment_bytes = 0;
  bool always_shifted = false;  // as Options
  std::string build_options = "-cl-std=CL1.2";
  bool tells_spills = false;  // of a kernel; Intel's own driver
};

// Every device that can run a program, in the drivers' order. A device is left out, with a warning that has the reason,
// if its driver fails to answer or reports nonsense (no memory, work-groups of 0 items, no compiler).
std::vector<OpenclDevice> find_devices(const Driver &driver, const base::Log &log);

// The one called `name`; "opencl": the first GPU or accelerator, else the first device. Throws Error (UNAVAILABLE) with
// a list of those that exist.
const OpenclDevice &select_device(const std::vector<OpenclDevice> &devices, const std::string &name);

}  // namespace tandem::opencl
