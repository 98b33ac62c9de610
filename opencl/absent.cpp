// SPDX-License-Identifier: Apache-2.0
// A build without OpenCL's headers.
#include "base/error.hpp"
#include "opencl/factory.hpp"

namespace tandem::opencl {

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &) {
  base::fail(TANDEM_ERROR_UNAVAILABLE,
             "backend \"" + options.device + "\": this library was built without OpenCL (its headers were missing)");
}

bool may_have_gpus(const std::string &) { return false; }

device::Listing describe_devices(std::chrono::milliseconds, const tandem_opencl_module *) {
  return {{}, "this library was built without OpenCL"};
}

}  // namespace tandem::opencl
