// The memory roof: loops that read the same inputs and write the same outputs as an operation, with one XOR per load
// and nothing else. No kernel that computes something can be faster than the best of them.
//
// Included by the roof_<isa>.cpp files, which are compiled with flags of their own: plain declarations only.
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
  uint64_t (*run)(const RoofWork &work);  // the result depends on every byte read, so that no load is left out
};

struct RoofLoops {
  const char *vectors;  // "512-bit"
  const RoofLoop *loops;
  size_t count;
  uint64_t (*spin_registers)(uint64_t rounds);  // arithmetic in registers alone: how compute scales over threads
};

// Those in the widest vectors that this CPU has.
RoofLoops roof_loops();

}  // namespace tandem::bench
