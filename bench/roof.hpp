// SPDX-License-Identifier: Apache-2.0
// The memory roof: loops that read the same inputs and write the same outputs as an operation. They do one XOR for each
// load and nothing else. No kernel that computes more can be faster than the best of them.
//
// The roof_<isa>.cpp files include this, and have their own compiler flags: plain declarations only.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tandem::bench {

struct RoofWork {
  const unsigned char *const *inputs;
  size_t input_count;
  unsigned char *const *outputs;
  size_t output_count;
  size_t length_bytes;  // of each input and output
};

struct RoofLoop {
  const char *name;
  uint64_t (*run)(const RoofWork &work);  // the result depends on every byte read, so no load can be omitted
};

struct RoofLoops {
  const char *vectors;  // "512-bit"
  const RoofLoop *loops;
  size_t count;
  uint64_t (*spin_registers)(uint64_t rounds);  // arithmetic in registers alone: how compute scales over threads
};

// The loops in the widest vectors that this CPU has.
RoofLoops roof_loops();

}  // namespace tandem::bench
