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
  bool out_of_cache;        // prefetch inputs, and write outputs past the cache where that is allowed
  uint32_t tile_bytes;      // columns worked on at a time; 0 = the kernel's own choice
  uint32_t prefetch_bytes;  // how far ahead; 0 = the kernel's own choice
  bool small_stack;         // take less than 3 KiB of it, at some cost in speed
};

// A coefficient as ISA-L's tables hold it: its products with 0..15, then with 0x00, 0x10, .. 0xf0.
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

// p = XOR of all inputs, q = XOR over i of 2^i * inputs[i].
struct RaidCall {
  const uint8_t *const *inputs;  // read from offset_bytes on; p and q are written from 0 on
  size_t offset_bytes;
  uint32_t count;  // at least 1
  uint8_t *p;
  uint8_t *q;  // null: not wanted
  size_t length_bytes;
  bool out_of_cache;
};

struct CpuFeatures {
  bool ssse3, avx2, gfni, avx512;  // avx2 and gfni: with operating system support; avx512 = F + BW + VL (+ DQ)
};

struct Kernel {
  const char *name;   // "avx512-gfni"; users force it by this name
  const char *needs;  // for people: "AVX-512 F/BW/VL, GFNI"
  bool (*supported)(const CpuFeatures &features);
  // What prepare writes, into 64-byte aligned storage. Fewer rows or columns never need more.
  size_t (*tables_bytes)(uint32_t rows, uint32_t columns);
  // coefficients: row-major. Takes less than 3 KiB of stack, as apply_nibbles and raid do.
  void (*prepare)(const uint8_t *coefficients, uint32_t rows, uint32_t columns, void *tables);
  void (*apply)(const KernelCall &call);
  void (*apply_nibbles)(const NibbleCall &call);
  void (*raid)(const RaidCall &call);
  uint32_t rows_at_once;  // of so many rows apply_nibbles reads all inputs at a place before it writes there
};

// Every kernel that was compiled in, best first; the last one ("scalar") runs anywhere.
struct KernelTable {
  const Kernel *const *kernels;
  uint32_t count;
};
KernelTable kernel_table();

CpuFeatures cpu_features();  // what this CPU and operating system have

// The first of the table that `features` support, or the one named `name` if that is not null; null if there is none.
const Kernel *select_kernel(const CpuFeatures &features, const char *name);

}  // namespace tandem::cpu
