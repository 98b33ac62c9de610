// SPDX-License-Identifier: Apache-2.0
// Advanced SIMD with the SHA3 extension: its EOR3 adds three registers at once. Apple M1, Neoverse V1, V2, N2 and
// later.
#include <arm_neon.h>

#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Xor3 {
  static uint8x16_t of(uint8x16_t a, uint8x16_t b, uint8x16_t c) { return veor3q_u8(a, b, c); }
};
#include "cpu/kernels/neon.inc"

bool supported(const CpuFeatures &features) { return features.neon && features.eor3; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelNeonEor3;
constinit const Kernel kKernelNeonEor3 =
    entry("neon-eor3", "Advanced SIMD, SHA3", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
