#include "bench/roof.hpp"

namespace tandem::bench {

extern const RoofLoops kRoofPortable;
#if defined(__x86_64__)
extern const RoofLoops kRoofAvx2, kRoofAvx512;
#endif

RoofLoops roof_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return kRoofAvx512;
  if (__builtin_cpu_supports("avx2")) return kRoofAvx2;
#endif
  return kRoofPortable;
}

}  // namespace tandem::bench
