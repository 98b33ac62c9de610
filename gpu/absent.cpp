// SPDX-License-Identifier: Apache-2.0
// A build without the CUDA toolkit's headers.
#include "base/error.hpp"
#include "gpu/factory.hpp"

namespace tandem::gpu {

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &) {
  base::fail(TANDEM_ERROR_UNAVAILABLE, "backend \"" + options.device +
                                           "\": this library was built without CUDA (the toolkit's headers were "
                                           "missing)");
}

bool may_have_devices(const std::string &) { return false; }

device::Listing describe_devices(std::chrono::milliseconds, const tandem_cuda_module *) {
  return {{}, "this library was built without CUDA"};
}

}  // namespace tandem::gpu
