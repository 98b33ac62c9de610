// What the driver of this machine offers, and which of it can be used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "gpu/driver.hpp"

namespace tandem::gpu {

struct Device {
  CUdevice id = 0;
  int ordinal = 0;
  std::string name;  // "cuda:0"
  std::string model;
  int major = 0, minor = 0;  // compute capability
  int driver_version = 0;    // 12040: CUDA 12.4
  std::uint64_t memory_bytes = 0;
  std::uint64_t shared_bytes = 0;  // of a block
  unsigned multiprocessor_count = 0;

  int architecture() const noexcept { return major * 10 + minor; }
  std::string driver_text() const;  // "CUDA 12.4"
};

// The GPUs that can be used, in the driver's order. One that cannot is left out with a warning that says why;
// `left_out` gets these reasons too. Throws Error (UNAVAILABLE) where there is no driver, one that is too old, or no
// GPU.
std::vector<Device> find_devices(const Driver &driver, const base::Log &log, std::string *left_out);

// The one called `name`; "cuda": the first. Throws Error (UNAVAILABLE) with a list of what there is.
const Device &select_device(const std::vector<Device> &devices, const std::string &name, const std::string &left_out);

}  // namespace tandem::gpu
