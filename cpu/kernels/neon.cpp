// SPDX-License-Identifier: Apache-2.0
// Advanced SIMD, which every 64-bit Arm processor for applications has.
#include <arm_neon.h>

#include "cpu/kernels/gf16_maps.hpp"
#include "cpu/kernels/kernel.hpp"
#include "cpu/kernels/nibbles.hpp"
#include "cpu/kernels/transform_constants.hpp"

namespace tandem::cpu {
namespace {

struct Xor3 {
  static uint8x16_t of(uint8x16_t a, uint8x16_t b, uint8x16_t c) { return veorq_u8(veorq_u8(a, b), c); }
};
#include "cpu/kernels/neon.inc"

bool supported(const CpuFeatures &features) { return features.neon; }
#include "cpu/kernels/entry.inc"

}  // namespace

extern const Kernel kKernelNeon;
constinit const Kernel kKernelNeon = entry("neon", "Advanced SIMD", Isa::kMostDirectRows, Isa::kMostSingles);

}  // namespace tandem::cpu
