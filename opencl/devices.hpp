// What the drivers of this machine offer, and which of it can be used.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "opencl/driver.hpp"

namespace tandem::opencl {

struct Device {
  cl_device_id id = nullptr;
  cl_platform_id platform = nullptr;
  std::string name;  // "opencl:0:1"
  cl_device_type type = 0;
  std::string model, vendor, driver_version, platform_name, platform_version;
  std::uint64_t memory_bytes = 0, most_buffer_bytes = 0, local_bytes = 0, parameter_bytes = 0;
  std::size_t most_group_items = 0;
  std::array<std::size_t, 3> most_items{};
  unsigned compute_units = 0;
  unsigned base_alignment_bytes = 0;
  bool shares_memory = false;  // with the host

  bool is_cpu() const noexcept { return (type & CL_DEVICE_TYPE_CPU) != 0; }
  const char *kind() const noexcept;
  std::string driver_text() const { return platform_name + " " + platform_version + ", driver " + driver_version; }
};

// Every device that can run a program, in the drivers' order. One whose driver reports nonsense (no memory, work-groups
// of 0 items, no compiler) or fails to answer is left out, with a warning that says what.
std::vector<Device> find_devices(const Driver &driver, const base::Log &log);

// The one called `name`; "opencl": the first GPU or accelerator, else the first device. Throws Error (UNAVAILABLE) with
// a list of what there is.
const Device &select_device(const std::vector<Device> &devices, const std::string &name);

}  // namespace tandem::opencl
