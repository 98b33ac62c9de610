// SPDX-License-Identifier: Apache-2.0
// The devices that the driver of this machine offers, and which of them can be used.
#pragma once

#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "gpu/driver.hpp"

namespace tandem::gpu {

struct CudaDevice final : device::Device {
  const Driver *driver = nullptr;
  CUdevice id = 0;
  int ordinal = 0;
};

std::string version_text(int version);                  // "11.7"
std::string capability_text(const CudaDevice &device);  // "7.5"

// The GPUs that can be used, in the driver's order. Others are left out with a warning that has the reason; `left_out`
// gets these reasons too. Throws Error (UNAVAILABLE) if there is no driver, one that is too old, or no GPU.
std::vector<CudaDevice> find_devices(const Driver &driver, const base::Log &log, std::string *left_out);

// The one called `name`; "cuda": the first. Throws Error (UNAVAILABLE).
const CudaDevice &select_device(const std::vector<CudaDevice> &devices, const std::string &name,
                                const std::string &left_out);

}  // namespace tandem::gpu
