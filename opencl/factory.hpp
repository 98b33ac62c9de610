// SPDX-License-Identifier: Apache-2.0
// OpenCL devices as Backends. No OpenCL type here: the rest of the library does not know its headers.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "device/listing.hpp"
#include "device/options.hpp"

struct tandem_opencl_module;  // opencl/opencl_module.hpp

namespace tandem::opencl {

inline constexpr const char *kMemoryResource = "opencl_mib";  // MiB of its buffers

struct Options : device::Options {  // `device` is "opencl" or "opencl:P:D", `resources` has "opencl_mib"
  Options() { device = "opencl"; }
  bool always_shifted = false;                   // kernels that do not use alignment: GPUs run them if shards have none
  const tandem_opencl_module *driver = nullptr;  // nullptr = libtandem_opencl.so; else outlives the backend
};

// "opencl" or "opencl:P:D" with decimal numbers.
inline bool is_device_name(const std::string &name) noexcept { return device::is_device_name(name, "opencl", 2); }

// Touches no driver. The first prepare or run does that, and throws Error (UNAVAILABLE), with a list of devices, for
// one that this machine lacks. Throws Error (UNAVAILABLE) at once for an unknown technique, and if this build, or this
// installation, has no OpenCL.
std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log);

// Whether the system has a device node of an accelerator, or of a GPU that is not NVIDIA's (those are CUDA's), below
// `root`. This check loads no driver.
bool may_have_gpus(const std::string &root = "");

// The usable devices, as device::list_devices.
device::Listing describe_devices(std::chrono::milliseconds patience, const tandem_opencl_module *driver = nullptr);

}  // namespace tandem::opencl
