// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "cpu/kernels/kernel.hpp"

namespace tandem::cpu {

// One per kernel file, defined there.
extern const Kernel kKernelScalar;
#if defined(TANDEM_HAVE_X86_KERNELS)
extern const Kernel kKernelSsse3, kKernelAvx2, kKernelAvx2Gfni, kKernelAvx512, kKernelAvx512Gfni;
#elif defined(TANDEM_HAVE_ARM_KERNELS)
extern const Kernel kKernelNeon, kKernelNeonEor3;
#endif

KernelTable kernel_table() {
  static const Kernel *const kernels[] = {
#if defined(TANDEM_HAVE_X86_KERNELS)
    &kKernelAvx512Gfni,
    &kKernelAvx512,
    &kKernelAvx2Gfni,
    &kKernelAvx2,
    &kKernelSsse3,
#elif defined(TANDEM_HAVE_ARM_KERNELS)
    &kKernelNeonEor3,
    &kKernelNeon,
#endif
    &kKernelScalar,
  };
  return {kernels, sizeof kernels / sizeof *kernels};
}

const Kernel *select_kernel(const CpuFeatures &features, const char *name) {
  const KernelTable table = kernel_table();
  for (uint32_t i = 0; i < table.count; ++i) {
    const Kernel *kernel = table.kernels[i];
    if (name != nullptr && strcmp(kernel->name, name) != 0) continue;
    if (kernel->supported(features)) return kernel;
  }
  return nullptr;
}

}  // namespace tandem::cpu
