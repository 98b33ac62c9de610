// SPDX-License-Identifier: Apache-2.0
#include "bench/roof.hpp"

namespace tandem::bench {

extern const RoofLoops kRoofPortable;
#if defined(__x86_64__)
extern const RoofLoops kRoofAvx2, kRoofAvx512;
#elif defined(__aarch64__)
extern const RoofLoops kRoofNeon;
#endif

RoofLoops roof_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return kRoofAvx512;
  if (__builtin_cpu_supports("avx2")) return kRoofAvx2;
#elif defined(__aarch64__)
  return kRoofNeon;
#endif
  return kRoofPortable;
}

}  // namespace tandem::bench
