// SPDX-License-Identifier: Apache-2.0
// libtandem_opencl.so: the only file that is linked with libOpenCL.
#include "opencl/opencl_module.hpp"

namespace {

#define TANDEM_OPENCL_ADDRESS(name) ::name,
const tandem_opencl_module kModule = {TANDEM_OPENCL_VERSION, sizeof(tandem_opencl_module),
                                      TANDEM_OPENCL_FUNCTIONS(TANDEM_OPENCL_ADDRESS)};
#undef TANDEM_OPENCL_ADDRESS

}  // namespace

extern "C" __attribute__((visibility("default"))) const tandem_opencl_module *tandem_opencl_module_get(void) {
  return &kModule;
}
