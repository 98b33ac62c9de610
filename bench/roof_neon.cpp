// SPDX-License-Identifier: Apache-2.0
// 32 bytes in two registers of Advanced SIMD, which LDP, STP and STNP move together.
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace tandem::bench {
namespace {

struct Isa {
  struct Vector {
    uint8x16_t a, b;
  };
  static constexpr size_t kVectorBytes = 32;
  static constexpr char kName[] = "2 x 128-bit";
  static Vector zero() { return {vdupq_n_u8(0), vdupq_n_u8(0)}; }
  static Vector load(const unsigned char *from) {
    return opaque({vld1q_u8(from), vld1q_u8(from + 16)});  // both together, so that they become one LDP
  }
  static void store(unsigned char *to, Vector vector) { vst1q_u8(to, vector.a), vst1q_u8(to + 16, vector.b); }
  static void stream(unsigned char *to, Vector vector) {
    asm("stnp %q1, %q2, %0" : "=Q"(*reinterpret_cast<unsigned char(*)[32]>(to)) : "w"(vector.a), "w"(vector.b));
  }
  static Vector exclusive_or(Vector a, Vector b) { return {veorq_u8(a.a, b.a), veorq_u8(a.b, b.b)}; }
  static void fence() {}  // STNP is ordered like any other store
  static Vector opaque(Vector vector) {
    asm volatile("" : "+w"(vector.a), "+w"(vector.b));
    return vector;
  }
  static uint64_t fold(Vector vector) {
    const uint64x2_t all = vreinterpretq_u64_u8(vorrq_u8(vector.a, vector.b));
    return vgetq_lane_u64(all, 0) | vgetq_lane_u64(all, 1);
  }
};

}  // namespace
}  // namespace tandem::bench

#include "bench/roof_loop.hpp"

namespace tandem::bench {
extern const RoofLoops kRoofNeon;
constinit const RoofLoops kRoofNeon = kRoofLoops;
}  // namespace tandem::bench
