// SPDX-License-Identifier: Apache-2.0
// 16-byte vectors, which every compiler target has in some form. There are no streaming stores: "stream" is a plain
// store.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace tandem::bench {
namespace {

struct Isa {
  typedef uint64_t Vector __attribute__((vector_size(16)));
  static constexpr size_t kVectorBytes = 16;
  static constexpr char kName[] = "128-bit";
  static Vector zero() { return Vector{0, 0}; }
  static Vector load(const unsigned char *from) {
    Vector vector;
    memcpy(&vector, from, sizeof vector);
    return vector;
  }
  static void store(unsigned char *to, Vector vector) { memcpy(to, &vector, sizeof vector); }
  static void stream(unsigned char *to, Vector vector) { store(to, vector); }
  static Vector exclusive_or(Vector a, Vector b) { return a ^ b; }
  static void fence() {}
  static Vector opaque(Vector vector) {
#if defined(__x86_64__)
    asm volatile("" : "+x"(vector));
#else
    asm volatile("" : "+m"(vector));
#endif
    return vector;
  }
  static uint64_t fold(Vector vector) { return vector[0] | vector[1]; }
};

}  // namespace
}  // namespace tandem::bench

#include "bench/roof_loop.hpp"

namespace tandem::bench {
extern const RoofLoops kRoofPortable;
constinit const RoofLoops kRoofPortable = kRoofLoops;
}  // namespace tandem::bench
