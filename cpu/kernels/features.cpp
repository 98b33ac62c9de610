// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/kernel.hpp"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tandem::cpu {

#if defined(__x86_64__)

// __builtin_cpu_supports also asks whether the operating system saves the wider registers (XGETBV).
CpuFeatures cpu_features() {
  CpuFeatures features = {};
  __builtin_cpu_init();
  features.ssse3 = __builtin_cpu_supports("ssse3");
  features.avx2 = __builtin_cpu_supports("avx2");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.gfni = __builtin_cpu_supports("gfni") && features.avx2;
  return features;
}

#elif defined(__APPLE__)

CpuFeatures cpu_features() {
  CpuFeatures features = {};
  int sha3 = 0;
  size_t bytes = sizeof sha3;
  features.neon = true;
  features.eor3 = sysctlbyname("hw.optional.arm.FEAT_SHA3", &sha3, &bytes, nullptr, 0) == 0 && sha3 != 0;
  return features;
}

#elif defined(__aarch64__)

// The features that the operating system lets programs use (Linux, Documentation/arm64/elf_hwcaps.rst).
CpuFeatures cpu_features() {
  CpuFeatures features = {};
  const unsigned long capabilities = getauxval(AT_HWCAP);
  features.neon = (capabilities & HWCAP_ASIMD) != 0;
  features.eor3 = (capabilities & HWCAP_SHA3) != 0;
  return features;
}

#else

CpuFeatures cpu_features() { return {}; }

#endif

}  // namespace tandem::cpu
