#include "cpu/kernels/kernel.hpp"

#if defined(__x86_64__) || defined(__i386__)

namespace tandem::cpu {

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

}  // namespace tandem::cpu

#else

namespace tandem::cpu {
CpuFeatures cpu_features() { return {}; }
}  // namespace tandem::cpu

#endif
