// SPDX-License-Identifier: Apache-2.0
// The generator of device kernels: from a matrix and tuning values to the text of a program, in any of three dialects,
// and how to launch it. A pure function. The same body is printed for all dialects; what differs between them stands
// in the preludes of device/text/. How the kernels work: docs/internals/GENERATED.md.
//
// A kernel applies the matrix to the bytes [0, length) of its shards. Work is cut like this:
//
//     | head | element element element ... element | tail |      all shards alike
//            begin                                 end     length
//
// A tile is the part that one work-group row of local_x (times elements_per_item) work-items covers. local_y work-items
// share the passes over a tile's outputs, local_z tiles make a work-group. One more group, the first one, handles head
// and tail byte by byte. So the other groups need no test of bounds inside an element.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "core/matrix.hpp"
#include "core/operator.hpp"

namespace tandem::device {

enum class Dialect { host_c, opencl_c, cuda_c };

enum class Technique {
  compiled,  // the matrix is in the text: bit-accumulators, straight-line XOR
  tables,    // matrix-agnostic: nibble tables of four outputs in local memory, filled from data
  transform  // a Cauchy code's points are in the text: groups of points share work through local memory
};

// In the order of the techniques; the caller of a context may force one by its name.
inline constexpr std::array<const char *, 3> kTechniqueNames = {"compiled", "tables", "transform"};

// Properties of addresses, relative to element_bytes.
enum class Access {
  aligned,  // every shard is aligned to element_bytes, and begin is 0
  shifted,  // any: aligned words and funnel shifts; outputs by the widest stores that fit each
  direct    // any, on processors that load and store at any address (not in CUDA C)
};

// How a kernel finds its shards.
enum class Binding {
  offsets,    // OpenCL C: all inputs lie in one buffer, all outputs in one (which may be the same)
  arguments,  // OpenCL C: a buffer argument for each shard. CUDA C, host C: an array of pointers (offsets unused)
  table       // many stripes in one launch (mode assign): for each a row of a table on the device, see KernelBatch
};

// How a compiled kernel of CUDA C loads its inputs. The other dialects have plain alone.
enum class Loads {
  plain,
  streaming,  // past the first cache, and stores that are not kept in caches (access aligned)
  async       // through shared memory, four inputs ahead (access aligned, architecture 80 and up)
};

// The points of a Cauchy code for technique transform, and what its kernels need to know of them at a launch.
struct CauchyPoints {
  explicit CauchyPoints(core::CauchyTransform of);

  core::CauchyTransform form;
  unsigned output_group_count = 0;  // groups of 8 points that have outputs
  unsigned kept_input_count = 0;    // inputs of such groups
};

struct KernelTuning {
  unsigned element_bytes = 16;                 // loaded by a work-item at once: 4, 8, 16, 32 or 64 (CUDA C: at most 16)
  unsigned elements_per_item = 1;              // a work-item's elements are local_x elements apart
  unsigned rows_per_pass = 4;                  // outputs with accumulators in a work-item; tables: always 4
  std::array<unsigned, 3> local = {64, 1, 1};  // work-group size; in the text of technique transform alone
  Loads loads = Loads::plain;

  static constexpr unsigned kMostElementsPerItem = 64;
};

struct KernelSpec {
  Dialect dialect = Dialect::opencl_c;
  Technique technique = Technique::compiled;
  core::Mode mode = core::Mode::assign;
  Access access = Access::aligned;
  Binding binding = Binding::offsets;
  unsigned architecture = 75;  // CUDA C: of the GPU, ten times its compute capability
  bool byte_lanes = false;     // OpenCL C by clang: the processor has vectors of bytes (a CPU-type device)
  KernelTuning tuning;
  std::string name = "tandem_apply";  // the kernel's
  // Technique transform: the points of the matrix. A work-item has kTransformBytes of each shard, in elements_per_item
  // elements. A work-group has local[0] items in each of local[1] rows (1, 2, 4 or 8). Both are in the text. local[2]
  // is 1.
  std::shared_ptr<const CauchyPoints> points;

  static constexpr unsigned kTransformBytes = 32;
};

// Operations on 32-bit words, counted while the text is written: for one word of each shard, for eight by technique
// transform.
struct KernelOperations {
  std::uint64_t two_input = 0;    // XOR, AND, shift, subtract with at most two inputs each
  std::uint64_t three_input = 0;  // the same where one instruction XORs three words (LOP3, vpternlog)
  std::uint64_t loads = 0, stores = 0;
  std::uint64_t table_lookups = 0;  // technique tables
  std::uint64_t data_bytes = 0;     // of the inputs
};

struct KernelText {
  std::string text;
  KernelOperations operations;
};

// The longest shard of one launch. Kernels of CUDA C count elements of 4 bytes or more in 32 bits, past the end too;
// those of OpenCL C count bytes. Pieces of this size keep every alignment.
constexpr std::uint64_t most_launch_bytes(Dialect dialect) noexcept {
  if (dialect == Dialect::host_c) return UINT64_MAX;
  return std::uint64_t{dialect == Dialect::cuda_c ? 8u : 4u} << 30;
}

inline constexpr std::uint64_t kRecordBytes = 8;  // of a compare: see KernelRange

// Local memory of technique tables, for each column: 16 words for the low nibble and 16 for the high one.
inline constexpr std::uint64_t kTableBytesPerColumn = 128;

// Arguments, in order. OpenCL C:
//     offsets:    const uchar *inputs, uchar *outputs,            arguments: const uchar *in_0 ..., uchar *out_0 ...
//     constant ulong *offsets  (inputs, then outputs: where each shard's byte 0 lies in its buffer)
//     ulong begin, ulong end, ulong length
//     uint *records            (compare: see KernelRange; else any buffer)
//     tables: const uint *tables (pack_nibble_tables), uint columns, uint rows, local uint *space
//     transform: local uint *space (kernel_shared_bytes)
// An empty list of shards (no columns) still has its buffer argument with binding `offsets`, none with `arguments`.
// With binding `arguments` the number of shards is in the text, also for technique tables.
//     table:      as offsets; `offsets` is the table, and begin, end and length are not there
// CUDA C: one struct by value, `struct tandem_arguments`, as below; dynamic shared memory of kernel_shared_bytes. Host
// C: `void name(const struct tandem_arguments *, uint64_t group, const uint32_t local[3])`, which runs one work-group.
// Binding `table`: shards[0] is the table; begin, end and length are not used, but that host C takes the number of the
// row from begin.
struct KernelArguments {
  static constexpr unsigned kMostShards = 256;
  void *shards[kMostShards];  // inputs, then outputs
  std::uint64_t begin, end, length;
  std::uint32_t *records;
  const std::uint32_t *tables;
  std::uint32_t *space;  // host C: kernel_shared_bytes, this group's own
  std::uint32_t columns, rows;
};

// Throws Error (INVALID_ARGUMENT) for tuning values that make no kernel, and for a matrix without rows.
// Technique tables ignores the matrix' cells; with Binding::offsets, CUDA C and host C also its shape.
KernelText generate_kernel(const core::Matrix &matrix, const KernelSpec &spec);

// Local (CUDA: shared) memory of a work-group of size spec.tuning.local.
std::uint64_t kernel_shared_bytes(const KernelSpec &spec, unsigned columns) noexcept;

// How a range is cut. records: compare writes two words for each tile and output (tile-major): one less than the count
// of mismatching bytes, and the first one's position in the tile. Head and tail follow as two more tiles. Two words lie
// before all of them: found_tiles() reads them. The caller sets all bits beforehand, which means 0 bytes and takes one
// fill. Only tiles with a mismatch are written.
struct KernelRange {
  std::uint64_t begin = 0, end = 0, length = 0;
  std::uint64_t tile_bytes = 0, tile_count = 0;
  std::uint64_t group_count = 0;   // with the first one, for head and tail
  std::uint64_t record_count = 0;  // for each output

  std::uint64_t record_bytes(unsigned rows) const noexcept { return (record_count * rows + 1) * kRecordBytes; }
  // The offset of the first byte of a record's tile, and the end of the tile.
  std::uint64_t record_start(std::uint64_t record) const noexcept;
  std::uint64_t record_end(std::uint64_t record) const noexcept;
};

inline std::uint32_t mismatch_count(const std::uint32_t *record) noexcept { return record[0] + 1; }

// The tiles from the first one with a mismatch to the last one, and where their records lie in what compare wrote.
struct FoundTiles {
  std::uint64_t first = 0, count = 0;

  std::uint64_t offset_bytes(unsigned rows) const noexcept { return (first * rows + 1) * kRecordBytes; }
  std::uint64_t record_bytes(unsigned rows) const noexcept { return count * rows * kRecordBytes; }
};
inline FoundTiles found_tiles(const std::uint32_t *records) noexcept {
  const std::uint32_t first = records[0], end = ~records[1];
  return end > first ? FoundTiles{first, end - first} : FoundTiles{};
}

// first_output: the address (or offset in an aligned buffer) of output 0; full-width stores are aligned to it. length
// >= 1. Throws Error (TOO_LARGE) if a tile exceeds 32 bits, groups exceed 2^31 - 1, records 2^32 - 1, or a range
// most_launch_bytes.
KernelRange cut_kernel_range(const KernelSpec &spec, std::uint64_t length, std::uint64_t first_output);

// A stripe of a launch with Binding::table: the begins of its shards, inputs and then outputs. first_output: as above.
struct BatchStripe {
  std::vector<std::uint64_t> starts;
  std::uint64_t length = 0, first_output = 0;
};

// How a launch with Binding::table is cut. A row of the table is a stripe, or a part of a stripe that is longer than
// most. The rows have about equal work. There are at most twice as many rows as stripes, and at most as many groups
// without work as stripes and groups with work. The launch has group_count x y x z groups. The first one
// of a row that has a head or a tail is for them.
struct KernelBatch {
  // y * z rows: begin, end, length, then the begin of each shard. Rows of zeros, which do nothing, fill up the rest.
  std::vector<std::uint64_t> words;
  std::uint64_t group_count = 0;
  unsigned y = 0, z = 0;  // row = z * y's size + y: a grid of CUDA has at most 65,535 in both
};

// Stripes of one matrix, at least one. Throws Error as cut_kernel_range does, and for too many rows.
KernelBatch cut_kernel_batch(const KernelSpec &spec, std::span<const BatchStripe> stripes);

// The tables of technique `tables`, for passes of four outputs. Byte r of word [(pass * columns + c) * 32 + v] is the
// product of coefficient [4 * pass + r][c] and v, for v < 16. From there on it is the product with v - 16 times 16.
std::vector<std::uint32_t> pack_nibble_tables(const core::Matrix &matrix);

}  // namespace tandem::device
