// SPDX-License-Identifier: Apache-2.0
// The loops of roof.hpp, once for every vector width. Included inside a file that is compiled for one instruction set,
// after that file's vocabulary `Isa`; everything is in unnamed namespaces so that no copy leaves it. Isa has
//   Vector, kVectorBytes, kName, zero, load, store, stream (a store past the caches), exclusive_or, fence, opaque (the
//   compiler must take the vector for changed), fold (to 64 bits)
#pragma once

#include "bench/roof.hpp"

namespace tandem::bench {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kAccumulators = 4;  // enough: two loads a cycle do not wait for each other's XOR

struct Accumulators {
  Isa::Vector vectors[kAccumulators];
  unsigned char byte;
};

// Loads one vector of each of kCount inputs, each with its own load instruction. Hardware prefetchers recognise streams
// by their instruction. With one instruction for all, half of the rate is lost (measured on Zen 4 and Zen 5).
template <size_t kCount, size_t kAheadBytes>
struct Streams {
  __attribute__((always_inline)) static inline void read(const unsigned char *const *inputs, size_t at,
                                                         Accumulators *sum) {
    Streams<kCount - 1, kAheadBytes>::read(inputs, at, sum);
    const unsigned char *const from = inputs[kCount - 1] + at;
    if constexpr (kAheadBytes != 0) {
      if (at % kLineBytes == 0) __builtin_prefetch(from + kAheadBytes, 0, 3);
    }
    Isa::Vector &vector = sum->vectors[kCount % kAccumulators];
    vector = Isa::exclusive_or(vector, Isa::load(from));
  }
};

template <size_t kAheadBytes>
struct Streams<0, kAheadBytes> {
  static inline void read(const unsigned char *const *, size_t, Accumulators *) {}
};

template <size_t kCount, size_t kAheadBytes>
__attribute__((always_inline)) inline void read_tile(const unsigned char *const *inputs, size_t begin, size_t end,
                                                     Accumulators *sum) {
  const unsigned char *streams[kCount];
  for (size_t i = 0; i < kCount; ++i) streams[i] = inputs[i];
  Accumulators local = *sum;
  size_t at = begin;
  for (; at + Isa::kVectorBytes <= end; at += Isa::kVectorBytes)
    Streams<kCount, kAheadBytes>::read(streams, at, &local);
  for (; at < end; ++at) {
    for (const unsigned char *stream : streams) local.byte ^= stream[at];
  }
  *sum = local;
}

// The same for `count` inputs, up to kMost.
template <size_t kMost, size_t kAheadBytes>
__attribute__((always_inline)) inline void read_some(size_t count, const unsigned char *const *inputs, size_t begin,
                                                     size_t end, Accumulators *sum) {
  if constexpr (kMost != 0) {
    if (count == kMost) return read_tile<kMost, kAheadBytes>(inputs, begin, end, sum);
    read_some<kMost - 1, kAheadBytes>(count, inputs, begin, end, sum);
  }
}

template <bool kStream>
inline void write(unsigned char *output, size_t length_bytes, const Accumulators &sum) {
  constexpr size_t kBlockBytes = kAccumulators * Isa::kVectorBytes;
  const auto put = [](unsigned char *to, Isa::Vector vector) {
    kStream ? Isa::stream(to, vector) : Isa::store(to, vector);
  };
  size_t at = 0;
  // Streaming stores need alignment; other stores are faster with it.
  const size_t misplaced = reinterpret_cast<uintptr_t>(output) % Isa::kVectorBytes;
  const size_t head = misplaced == 0 ? 0 : Isa::kVectorBytes - misplaced;
  for (; at < head && at < length_bytes; ++at) output[at] = sum.byte;
  for (; at + kBlockBytes <= length_bytes; at += kBlockBytes) {
    for (size_t i = 0; i < kAccumulators; ++i) put(output + at + i * Isa::kVectorBytes, sum.vectors[i]);
  }
  for (; at + Isa::kVectorBytes <= length_bytes; at += Isa::kVectorBytes) put(output + at, sum.vectors[0]);
  for (; at < length_bytes; ++at) output[at] = sum.byte;
}

// Works in column tiles, as an encoder must: all inputs of a tile, sixteen at a time, then all outputs. Tiles of an
// output end at its cache lines, so that streaming stores fill whole lines wherever the shard starts.
template <size_t kTileBytes, size_t kAheadBytes, bool kStream>
uint64_t run_loop(const RoofWork &work) {
  Accumulators sum;
  for (Isa::Vector &vector : sum.vectors) vector = Isa::zero();
  sum.byte = 0;
  for (size_t begin = 0; begin < work.length_bytes; begin += kTileBytes) {
    const bool last = work.length_bytes - begin <= kTileBytes;
    const size_t end = last ? work.length_bytes : begin + kTileBytes;
    size_t i = 0;
    for (; i + 16 <= work.input_count; i += 16) read_tile<16, kAheadBytes>(work.inputs + i, begin, end, &sum);
    read_some<15, kAheadBytes>(work.input_count - i, work.inputs + i, begin, end, &sum);
    for (size_t output = 0; output < work.output_count; ++output) {
      const size_t past_line = reinterpret_cast<uintptr_t>(work.outputs[output]) % kLineBytes;
      const size_t from = begin == 0 ? 0 : begin - past_line;
      const size_t to = last ? end : end - past_line;
      write<kStream>(work.outputs[output] + from, to - from, sum);
    }
  }
  if (kStream) Isa::fence();
  uint64_t folded = sum.byte;
  for (const Isa::Vector &vector : sum.vectors) folded ^= Isa::fold(vector);
  return folded;
}

uint64_t spin_registers(uint64_t rounds) {
  Isa::Vector vectors[8];
  for (Isa::Vector &vector : vectors) vector = Isa::zero();
  for (uint64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 8; ++i) vectors[i] = Isa::opaque(Isa::exclusive_or(vectors[i], vectors[(i + 1) % 8]));
  }
  uint64_t folded = 0;
  for (const Isa::Vector &vector : vectors) folded ^= Isa::fold(vector);
  return folded;
}

// Of some thirty loops, each of these was the fastest in some case on Zen 4: narrow tiles for few shards, wide tiles
// for many (k >= 32), plain ones in cache. Software prefetch helps where the hardware's prefetch is weaker.
constexpr RoofLoop kLoops[] = {
    {"plain, whole", run_loop<SIZE_MAX, 0, false>},
    {"plain, 256 B", run_loop<256, 0, false>},
    {"plain, 4 KiB", run_loop<4096, 0, false>},
    {"prefetch, 256 B", run_loop<256, 1024, false>},
    {"stream, 128 B", run_loop<128, 0, true>},
    {"stream, 256 B", run_loop<256, 0, true>},
    {"stream, 4 KiB", run_loop<4096, 0, true>},
    {"prefetch near, stream, 128 B", run_loop<128, 256, true>},
    {"prefetch near, stream, 256 B", run_loop<256, 256, true>},
    {"prefetch, stream, 256 B", run_loop<256, 512, true>},
    {"prefetch far, stream, 256 B", run_loop<256, 1024, true>},
    {"prefetch, stream, 4 KiB", run_loop<4096, 512, true>},
};

constexpr RoofLoops kRoofLoops = {Isa::kName, kLoops, sizeof kLoops / sizeof *kLoops, spin_registers};

}  // namespace
}  // namespace tandem::bench
