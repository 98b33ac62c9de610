// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as Backends. No CUDA type here: the rest of the library does not know its headers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "device/listing.hpp"
#include "device/options.hpp"

struct tandem_cuda_module;  // gpu/cuda_module.hpp

namespace tandem::gpu {

inline constexpr const char *kMemoryResource = "cuda_mib";  // MiB of its buffers

struct Options : device::Options {  // `device` is "cuda" or "cuda:N", `resources` has "cuda_mib"
  Options() { device = "cuda"; }
  const tandem_cuda_module *driver = nullptr;  // nullptr = libtandem_cuda.so; else outlives the backend
};

// "cuda" or "cuda:N" with a decimal number.
inline bool is_device_name(const std::string &name) noexcept { return device::is_device_name(name, "cuda", 1); }

// Touches no driver. The first prepare or run does that, and throws Error (UNAVAILABLE), with the reason, for a device
// that this machine lacks. Throws Error (UNAVAILABLE) at once for an unknown technique, and if this build, or this
// installation, has no CUDA.
std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log);

// Whether the system has a device node of such a GPU, below `root`: a check that loads no driver.
bool may_have_devices(const std::string &root = "");

// The usable GPUs, as device::list_devices.
device::Listing describe_devices(std::chrono::milliseconds patience, const tandem_cuda_module *driver = nullptr);

}  // namespace tandem::gpu
