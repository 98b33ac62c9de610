// SPDX-License-Identifier: Apache-2.0
// The table of CPU kernels: one entry per instruction-set variant. A kernel applies a coefficient matrix to a byte
// range of shards on the calling thread: no allocation, no lock.
//
// Included by the kernel files, which are compiled with -m flags: it must hold nothing but plain data and C headers.
// (An inline function compiled once with -mavx2 and once without links to ONE copy, perhaps the AVX2 one.)
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tandem::cpu {

// One application: outputs[r] (^)= XOR over c of M[r][c] * inputs[c] on [offset_bytes, offset_bytes + length_bytes).
struct KernelCall {
  const void *tables;  // made by the same kernel's `prepare` from the rows x columns matrix
  const uint8_t *const *inputs;
  uint8_t *const *outputs;
  size_t offset_bytes;
  size_t length_bytes;
  uint32_t rows;
  uint32_t columns;
  bool accumulate;          // outputs ^= instead of =
  bool out_of_cache;        // prefetch inputs, and write outputs past the cache if that is allowed
  uint32_t tile_bytes;      // columns worked on at a time; 0 = the kernel's own choice
  uint32_t prefetch_bytes;  // how far ahead; 0 = the kernel's own choice
  bool small_stack;         // take less than 3 KiB of it, at some cost in speed
  uint32_t l1_ways;         // of the L1 data cache, if it is known; else 0
};

// A scaled Cauchy matrix by its points, bytes of the field in its standard basis:
//   outputs[r] (^)= output_scales[r] * XOR over c of input_scales[c] * inputs[c] / (output_points[r] xor
//                   input_points[c])
// Any points will do. Whole aligned groups of 8 or more consecutive points make it fast.
struct TransformShape {
  const uint8_t *input_points, *output_points;  // each ascending, all distinct
  const uint8_t *input_scales, *output_scales;  // not 0; null: all 1
  uint32_t input_count, output_count;           // at least 1 each
};

// The data for counts of products and moves.
struct KernelTraits {
  uint32_t rows_per_pass;     // `apply` reads all inputs once for this many rows
  uint32_t fused_groups;      // groups of outputs that apply_transform keeps in registers
  bool has_quads, has_pairs;  // symmetric blocks that `apply` saves products in
};

// A coefficient in ISA-L's tables: its products with 0..15, then with 0x00, 0x10, .. 0xf0.
constexpr size_t kNibbleTableBytes = 32;

// The same operation with coefficients from nibble tables, on [0, length_bytes).
struct NibbleCall {
  const uint8_t *tables;  // of coefficient (r, c): tables + r * row_bytes + c * kNibbleTableBytes
  size_t row_bytes;
  const uint8_t *const *inputs;
  uint8_t *const *outputs;
  size_t length_bytes;
  uint32_t rows;
  uint32_t columns;
  bool accumulate;
  bool out_of_cache;
};

// outputs[0] = XOR of all inputs, of which there is at least one, and with Q outputs[1] = XOR over i of 2^i *
// inputs[i]. Inputs are read from offset_bytes on, outputs are written from 0 on. The arguments fit in registers: to
// fill a struct takes a third as long as a call of 128 bytes.
using RaidFunction = void(const uint8_t *const *inputs, size_t offset_bytes, uint32_t count, uint8_t *const *outputs,
                          size_t length_bytes, bool out_of_cache);

// Sums of vectors, done in their order.
struct SumsCall {
  uint8_t *const *slots;  // the vectors
  size_t bytes;           // of each; a multiple of 64
  const uint32_t *sums;   // for each sum: the number of sources, the slot it is written to, the slots of the sources
  uint32_t sum_count;     // a sum without sources is zero
};

// GF(2^16). Tables are a kernel's own form of a field's products.
struct Gf16Call {
  const void *tables;
  const uint16_t *coefficients;  // rows x columns
  const uint8_t *const *inputs;
  uint8_t *const *outputs;
  size_t offset_bytes;
  size_t length_bytes;  // even
  uint32_t rows;
  uint32_t columns;
  bool accumulate;
  bool is_words;  // little-endian words; else, for each 64 bytes, 32 low bytes and 32 high ones (n/2 and n/2 of the
                  // last)
};

// Lanes of an additive transform, one after another: lane i is at point + i. All have low and high bytes in turn.
struct Gf16Lanes {
  const void *tables;
  uint8_t *lanes;
  size_t lane_bytes;  // a multiple of 64
  unsigned log2;      // 2^log2 lanes
  unsigned point;     // a multiple of 2^log2
};

// Sums of powers (docs/internals/TRANSFORM.md): elements are a + b * t for bytes a, b of a subfield, t^2 + t a byte.
// Number i of a byte is its place in the span of a Cantor basis; numbers add as bytes do.
constexpr uint32_t kClassesAtOnce = 4, kNoInput = UINT32_MAX;

struct PowersMaps {
  uint8_t bytes[256];                   // by number, of GF(2^8) modulo 0x11d
  uint16_t to_pairs[16], to_words[16];  // of the single bits of a word and of a pair (a in the low byte)
};

struct PowersCall {
  const void *tables;
  uint8_t product;               // number of t^2 + t
  uint32_t log2;                 // each class is a polynomial of 2^log2 coefficients, 3 to 8
  uint32_t class_count;          // a multiple of kClassesAtOnce
  const uint32_t *class_inputs;  // of each class its coefficients: an input or kNoInput
  uint32_t sum_count;
  const uint16_t *sums_at;  // 256: how many sums have their value at the point of this number; they come in this order
  const uint32_t *sum_outputs;  // of each sum
  const uint8_t *factors;       // for kClassesAtOnce classes and each sum: a, b of each class, as numbers
  const uint8_t *const *inputs;
  uint8_t *const *outputs;
  size_t offset_bytes;
  size_t length_bytes;  // even
  bool accumulate;
  uint8_t *scratch;
};

struct Gf16Kernel {
  size_t tables_bytes;
  void (*prepare)(const uint16_t products[16][16], void *tables);  // products[i][b] = 2^i times 2^b as numbers
  void (*apply)(const Gf16Call &call);
  // Between lanes and pieces of shards, of any even length.
  void (*enter)(const void *tables, uint8_t *lane, const uint8_t *from, size_t bytes, uint16_t scale);
  void (*syndrome)(const void *tables, uint8_t *lane, const uint8_t *from, size_t bytes, uint16_t scale);
  void (*leave)(uint8_t *to, const uint8_t *lane, size_t bytes, bool accumulate);
  void (*add)(uint8_t *to, const uint8_t *from, size_t bytes);  // a multiple of 64
  // used: lanes from there on are zero. wanted: lanes from there on may hold anything afterwards.
  void (*inverse)(const Gf16Lanes &lanes, uint32_t used);
  void (*forward)(const Gf16Lanes &lanes, uint32_t wanted);
  // Columns of powers_strip_bytes are worked on at a time.
  size_t powers_tables_bytes, powers_strip_bytes;
  void (*prepare_powers)(const PowersMaps &maps, void *tables);
  size_t (*powers_scratch_bytes)(uint32_t log2, uint32_t sum_count);
  void (*apply_powers)(const PowersCall &call);
};

struct CpuFeatures {
  bool ssse3, avx2, gfni, avx512;  // avx2 and gfni: with operating system support; avx512 = F + BW + VL (+ DQ)
  bool neon, eor3;                 // of 64-bit Arm; eor3: the SHA3 extension
};

struct Kernel {
  const char *name;   // "avx512-gfni"; users force it by this name
  const char *needs;  // for people: "AVX-512 F/BW/VL, GFNI"
  bool (*supported)(const CpuFeatures &features);
  // The size of prepare's tables, in 64-byte aligned storage. Fewer rows or columns never need more.
  size_t (*tables_bytes)(uint32_t rows, uint32_t columns);
  // coefficients: row-major. Takes less than 3 KiB of stack, as apply_nibbles and the RAID functions do.
  void (*prepare)(const uint8_t *coefficients, uint32_t rows, uint32_t columns, void *tables);
  void (*apply)(const KernelCall &call);
  void (*apply_nibbles)(const NibbleCall &call);
  RaidFunction *raid_p, *raid_pq;
  // The same matrix in fewer products, by its points. `transform_bytes`: the size of prepare_transform's tables, in
  // 64-byte aligned storage.
  size_t (*transform_bytes)(const TransformShape &shape);
  void (*prepare_transform)(const TransformShape &shape, void *tables);
  // The size of apply_transform's scratch, 64-byte aligned, for calls of at most length_bytes; at most 640 KiB, and 0
  // if it needs none. Never less for a longer length.
  size_t (*transform_scratch_bytes)(const void *tables, size_t length_bytes, bool out_of_cache);
  // call.tables: from prepare_transform; rows and columns: the numbers of outputs and inputs. call.tile_bytes can only
  // reduce the kernel's own tile. Takes less than 4.5 KiB of stack.
  void (*apply_transform)(const KernelCall &call, void *scratch);
  KernelTraits traits;
  const Gf16Kernel *gf16;
  uint32_t rows_at_once;  // apply_nibbles reads the inputs of this many rows at a place before it writes there
  void (*add_packets)(const SumsCall &call);
};

// All compiled kernels, best first; the last one ("scalar") runs anywhere.
struct KernelTable {
  const Kernel *const *kernels;
  uint32_t count;
};
KernelTable kernel_table();

CpuFeatures cpu_features();  // what this CPU and operating system have

struct Caches {
  uint64_t l2_bytes;
  uint32_t l1_ways;  // of the L1 data cache; 0: unknown
};
Caches cache_sizes();  // of this machine; 1 MiB of L2 where that is unknown
// Caches of CPU 0, from root + "/sys/devices/system/cpu"; 0 for missing values. Allocates nothing.
Caches cache_sizes(const char *root);

// The first kernel of the table that `features` support; or the one named `name`, if that is not null. Null: there is
// none.
const Kernel *select_kernel(const CpuFeatures &features, const char *name);

}  // namespace tandem::cpu
