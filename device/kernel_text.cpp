// SPDX-License-Identifier: Apache-2.0
#include "device/kernel_text.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "base/text.hpp"
#include "core/gf.hpp"
#include "device/transform_text.hpp"
#include "kernel_text_files.hpp"

namespace tandem::device {
namespace {

constexpr unsigned kRowsPerTable = 4;  // bytes of a table's word
constexpr std::uint64_t kWordsPerColumn = kTableBytesPerColumn / sizeof(std::uint32_t);
constexpr unsigned kColumnsTogether = 4;  // all accumulators share their 11 sums
// How many inputs may be loaded early. A compiler that may load all of them first keeps all of them in registers.
constexpr unsigned kColumnsAhead = 16;
constexpr std::size_t kAddedTogether = 4;          // accumulators in one statement
constexpr unsigned kSlots = 2 * kColumnsTogether;  // of asynchronous copies: half in use, half on their way
constexpr unsigned kArchitectureOfAsyncCopies = 80;
constexpr std::uint64_t kShiftedMargin = 4;  // bytes that Access::shifted may read beyond an element
constexpr std::uint64_t kMostTileBytes = 1u << 31;
constexpr std::uint64_t kMostGroups = 0x7fffffff;
constexpr std::uint64_t kMostGridRows = 65'535;  // of CUDA, in y and z
constexpr std::size_t kRowWords = 3;             // of a table's row, before the shards

template <class Refuse>
void check_transform(const core::Matrix &matrix, const KernelSpec &spec, const Refuse &refuse) {
  const KernelTuning &tuning = spec.tuning;
  if (spec.points == nullptr) refuse("technique transform needs the points of the code");
  const core::CauchyTransform &form = spec.points->form;
  if (matrix.columns() == 0 || form.input_points.size() != matrix.columns() ||
      form.output_points.size() != matrix.rows())
    refuse(base::text(form.input_points.size(), " + ", form.output_points.size(), " points for a matrix of ",
                      matrix.rows(), " x ", matrix.columns()));
  if (tuning.element_bytes * tuning.elements_per_item != KernelSpec::kTransformBytes)
    refuse(base::text("technique transform needs ", KernelSpec::kTransformBytes, " bytes an item, not ",
                      tuning.elements_per_item, " x ", tuning.element_bytes));
  if (tuning.local[0] == 0 || !std::has_single_bit(tuning.local[1]) || tuning.local[1] > 8 || tuning.local[2] != 1)
    refuse(base::text("technique transform needs a work-group of X x 1, 2, 4 or 8 x 1 items, not ", tuning.local[0],
                      " x ", tuning.local[1], " x ", tuning.local[2]));
}

void check(const core::Matrix &matrix, const KernelSpec &spec) {
  const auto refuse = [](std::string why) { base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "kernel: " + std::move(why)); };
  const KernelTuning &tuning = spec.tuning;
  const unsigned most = spec.dialect == Dialect::cuda_c ? 16 : 64;
  if (tuning.element_bytes < 4 || tuning.element_bytes > most || !std::has_single_bit(tuning.element_bytes))
    refuse(base::text("element_bytes is ", tuning.element_bytes, "; a power of two from 4 to ", most));
  if (tuning.elements_per_item < 1 || tuning.elements_per_item > KernelTuning::kMostElementsPerItem)
    refuse(
        base::text("elements_per_item is ", tuning.elements_per_item, "; 1 to ", KernelTuning::kMostElementsPerItem));
  if (tuning.rows_per_pass < 1) refuse("rows_per_pass is 0");
  if (matrix.rows() == 0) refuse("a matrix without rows");
  if (matrix.rows() + matrix.columns() > KernelArguments::kMostShards)
    refuse(base::text(matrix.rows() + matrix.columns(), " shards; at most ", KernelArguments::kMostShards));
  if (spec.binding == Binding::table && spec.mode != core::Mode::assign)
    refuse("a table of stripes is for mode assign");
  if (spec.access == Access::direct && spec.dialect == Dialect::cuda_c) refuse("CUDA C has no access at any address");
  if (tuning.loads != Loads::plain) {
    if (spec.dialect != Dialect::cuda_c || spec.technique != Technique::compiled || spec.access != Access::aligned)
      refuse("loads other than plain are for compiled CUDA C with aligned access");
    if (tuning.loads == Loads::async && spec.architecture < kArchitectureOfAsyncCopies)
      refuse(
          base::text("asynchronous copies need sm_", kArchitectureOfAsyncCopies, "; this is sm_", spec.architecture));
  }
  if (spec.technique == Technique::transform) check_transform(matrix, spec, refuse);
  if (spec.name.empty()) refuse("it has no name");
}

// Operations of one HORNER step on a word: as device/text/common.h writes it, and, with three-input XOR, as
// device/text/cuda.h does (PRMT, SHF, two LOP3, one of which the accumulator's own XOR rides along with).
constexpr unsigned kHornerTwoInput = 8, kHornerThreeInput = 4;

// Writes the straight-line code of one pass: rows [first, end) of the matrix.
class PassWriter {
 public:
  PassWriter(const core::Matrix &matrix, const KernelSpec &spec, unsigned first_row, unsigned end_row, std::string &out,
             KernelOperations &operations)
      : matrix_(matrix),
        pairs_(spec.dialect == Dialect::cuda_c),
        async_(spec.tuning.loads == Loads::async),
        first_row_(first_row),
        end_row_(end_row),
        terms_(std::size_t{end_row - first_row} * 8),
        waiting_(terms_.size()),
        out_(out),
        operations_(operations) {}

  void write() {
    if (async_) fetch(0);
    for (unsigned c = 0; c < matrix_.columns(); c += kColumnsTogether) {
      write_columns(c, std::min(c + kColumnsTogether, matrix_.columns()));
    }
    for (unsigned r = first_row_; r < end_row_; ++r) write_row(r);
  }

 private:
  void line(std::string_view text) { ((out_ += "            ") += text) += '\n'; }

  std::size_t place(unsigned row, unsigned bit) const { return std::size_t{row - first_row_} * 8 + bit; }
  unsigned &terms(unsigned row, unsigned bit) { return terms_[place(row, bit)]; }

  bool needed(unsigned column) const {
    for (unsigned r = first_row_; r < end_row_; ++r)
      if (matrix_.at(r, column) != 0) return true;
    return false;
  }

  // Starts the copies of up to four inputs, as one group.
  void fetch(unsigned first) {
    for (unsigned c = first; c < std::min(first + kColumnsTogether, matrix_.columns()); ++c)
      if (needed(c)) line(base::text("FETCH(", c % kSlots, ", AT(INPUT(", c, ")));"));
    line("COPY_CLOSE;");
  }

  void load_column(unsigned column) {
    line(async_ ? base::text("const element x", column, " = FETCHED(", column % kSlots, ");")
                : base::text("const element x", column, " = LOAD(AT(INPUT(", column, ")));"));
    ++operations_.loads;
  }

  // Up to four inputs, the sums of them that are needed, and each sum into its accumulators.
  void write_columns(unsigned first, unsigned end) {
    bool used[16] = {};
    const auto mask_of = [&](unsigned row, unsigned bit) {
      unsigned mask = 0;
      for (unsigned c = first; c < end; ++c) mask |= (matrix_.at(row, c) >> bit & 1u) << (c - first);
      return mask;
    };
    for (unsigned r = first_row_; r < end_row_; ++r)
      for (unsigned bit = 0; bit < 8; ++bit) used[mask_of(r, bit)] = true;

    if (first != 0 && first % kColumnsAhead == 0 && !last_.empty()) line(base::text("AFTER(at, ", last_, ");"));
    if (async_) {
      const bool more = end < matrix_.columns();
      if (more) fetch(end);
      line(base::text("COPY_WAIT(", more ? 1 : 0, ");"));
    }
    for (unsigned c = first; c < end; ++c)
      if (needed(c)) load_column(c);
    bool written[16] = {};
    for (unsigned mask = 1; mask < 16; ++mask) {
      if (used[mask]) write_sum(mask, first, written);
    }
    for (unsigned r = first_row_; r < end_row_; ++r) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        if (const unsigned mask = mask_of(r, bit); mask != 0) add(r, bit, sum_name(mask, first));
      }
    }
    write_together();
  }

  // "x4" for a single input, "x4_6" for a sum.
  static std::string sum_name(unsigned mask, unsigned first) {
    std::string name = "x";
    for (unsigned i = 0; i < kColumnsTogether; ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (name.size() > 1) name += '_';
      name += std::to_string(first + i);
    }
    return name;
  }

  // A sum is an existing sum plus the rest; single inputs always exist.
  void write_sum(unsigned mask, unsigned first, bool (&written)[16]) {
    const auto stands = [&](unsigned sum) { return written[sum] || std::has_single_bit(sum); };
    if (stands(mask)) return;
    unsigned part = mask - 1;
    while (part != 0 && !(stands(part) && stands(mask ^ part))) part = (part - 1) & mask;
    if (part == 0) part = mask & (~mask + 1);
    write_sum(mask ^ part, first, written);
    line(base::text("const element ", sum_name(mask, first), " = ", sum_name(part, first), " ^ ",
                    sum_name(mask ^ part, first), ";"));
    ++operations_.two_input;
    ++operations_.three_input;
    written[mask] = true;
  }

  static std::string accumulator(unsigned row, unsigned bit) { return base::text("p", row, "_", bit); }

  void add(unsigned row, unsigned bit, const std::string &sum) {
    const std::string name = accumulator(row, bit);
    unsigned &count = terms(row, bit);
    if (count++ == 0) return line(base::text("element ", name, " = ", sum, ";"));
    ++operations_.two_input;
    operations_.three_input += count % 2 == 0;  // every second one is free
    if (!pairs_) {
      last_ = name;
      return line(base::text(name, " = ", name, " ^ ", sum, ";"));
    }
    std::string &waiting = waiting_[place(row, bit)];
    if (waiting.empty()) {
      waiting = sum;
    } else {
      together_.push_back(base::text(name, ", ", waiting, ", ", sum));
      if (together_.size() == kAddedTogether) write_together();
      waiting.clear();
      last_ = name;
    }
  }

  // Sums for several accumulators, in one statement as far as possible.
  void write_together() {
    if (together_.size() == kAddedTogether) {
      line(base::text("XOR3_FOUR(", base::join(together_, ", "), ");"));
    } else {
      for (const std::string &each : together_) line(base::text("XOR3_TO(", each, ");"));
    }
    together_.clear();
  }

  // The sums that are left single.
  void add_waiting(unsigned row, unsigned bit) {
    std::string &waiting = waiting_[place(row, bit)];
    if (!waiting.empty()) line(base::text(accumulator(row, bit), " = ", accumulator(row, bit), " ^ ", waiting, ";"));
    waiting.clear();
  }

  void write_row(unsigned row) {
    std::string sum;
    for (unsigned bit = 8; bit-- > 0;) {
      add_waiting(row, bit);
      const std::string next = terms(row, bit) != 0 ? accumulator(row, bit) : "ZERO";
      if (!sum.empty()) {
        line(base::text(sum, " = HORNER(", sum, ", ", next, ");"));
        operations_.two_input += kHornerTwoInput;
        operations_.three_input += kHornerThreeInput;
      } else if (terms(row, bit) != 0) {
        sum = base::text("p", row);
        line(base::text("element ", sum, " = ", next, ";"));
      }
    }
    line(base::text("FINISH(", row, ", OUTPUT(", row, "), ", sum.empty() ? "ZERO" : sum, ");"));
    ++operations_.stores;
  }

  const core::Matrix &matrix_;
  const bool pairs_;  // sums are added two at a time
  const bool async_;
  const unsigned first_row_, end_row_;
  std::vector<unsigned> terms_;        // added so far to each accumulator
  std::vector<std::string> waiting_;   // for a second sum to be added with
  std::vector<std::string> together_;  // each an accumulator and its two sums, of the present inputs
  std::string last_;                   // accumulator that a sum was added to
  std::string &out_;
  KernelOperations &operations_;
};

std::string write_passes(const core::Matrix &matrix, const KernelSpec &spec, KernelOperations &operations) {
  const unsigned rows_per_pass = spec.tuning.rows_per_pass;
  std::string out;
  for (unsigned first = 0, pass = 0; first < matrix.rows(); first += rows_per_pass, ++pass) {
    out += base::text("            if (pass == ", pass, ") {\n");
    if (rows_per_pass < matrix.rows()) out += "            FORGET(at);\n";
    PassWriter(matrix, spec, first, std::min(first + rows_per_pass, matrix.rows()), out, operations).write();
    out += "            }\n";
  }
  return out;
}

std::string write_matrix(const core::Matrix &matrix) {
  std::string out = "CONSTANT uchar matrix[] = {";
  for (unsigned r = 0; r < matrix.rows(); ++r)
    for (unsigned c = 0; c < matrix.columns(); ++c)
      out += base::text((r * matrix.columns() + c) % 24 == 0 ? "\n    " : " ", matrix.at(r, c), ",");
  return out + (matrix.rows() == 0 || matrix.columns() == 0 ? "0};\n" : "\n};\n");
}

// In the orders of Mode, Access and Dialect.
constexpr const char *kModeDefines[] = {"MODE_ASSIGN", "MODE_ACCUMULATE", "MODE_COMPARE"};
constexpr const char *kAccessDefines[] = {"ACCESS_ALIGNED", "ACCESS_SHIFTED", "ACCESS_DIRECT"};
constexpr const char *kPreludes[] = {text::host_h, text::opencl_h, text::cuda_h};

// The numbers 0, 1, ... count - 1, each between the two texts.
std::string list(const char *before, unsigned count, const char *after) {
  std::string out;
  for (unsigned i = 0; i < count; ++i) out += before + std::to_string(i) + after;
  return out;
}

// For Binding::table: how a group finds its row, and a word of it. A row without head and tail has no group for them.
std::string write_row(const char *pointer, const char *table, const char *word) {
  return base::text("#define ROW_WORD(i) ", word, "\n#define TAKE_ROW const ", pointer, " *stripe = ", table,
                    " + ROW * (", kRowWords,
                    " + COLUMNS + ROWS); const ulong begin = ROW_WORD(0), end = ROW_WORD(1), length = ROW_WORD(2);\n"
                    "#define FIRST_GROUP (begin == 0 && end == length ? 1u : 0u)\n");
}

// The kernel's parameter list, and the macros by which the body finds arguments and shards.
std::string write_interface(const core::Matrix &matrix, const KernelSpec &spec) {
  const bool tables = spec.technique == Technique::tables, transform = spec.technique == Technique::transform;
  if (spec.dialect != Dialect::opencl_c) {
    const bool host = spec.dialect == Dialect::host_c;
    std::string out = base::text("#define ARGUMENTS ", host ? "arguments->" : "arguments.", "\n");
    if (spec.binding == Binding::table) {
      out += write_row("ulong", "(const ulong *)ARGUMENTS shards[0]", host ? "stripe[i]" : "__ldg(stripe + (i))");
      out += base::text("#define SHARD(i) ((uchar *)ROW_WORD(", kRowWords,
                        " + (i)))\n#define MOVE_ROW(by) stripe += by\n");
    } else {
      out +=
          "#define SHARD(i) (ARGUMENTS shards[i])\n#define MOVE_ROW(by) (void)0\n#define FIRST_GROUP 0u\n"
          "#define TAKE_ROW const ulong begin = ARGUMENTS begin, end = ARGUMENTS end, length = ARGUMENTS length;\n";
    }
    out += base::text(
        "#define ANY_INPUT(c) ((const uchar *)SHARD(c))\n#define ANY_OUTPUT(r) SHARD(COLUMNS + (r))\n#define INPUT(c) "
        "ANY_INPUT(c)\n#define OUTPUT(r) ANY_OUTPUT(r)\n#define TAKE_SHARDS\n#define TAKE_ARGUMENTS",
        host ? " uint item[3];" : "",
        spec.mode == core::Mode::compare ? " uint *const records = ARGUMENTS records;" : "",
        tables ? " const uint *const tables = ARGUMENTS tables; const uint columns = ARGUMENTS columns, "
                 "rows = ARGUMENTS rows;"
               : "",
        !tables && !transform ? ""
        : host                ? " uint *const space = ARGUMENTS space;"
                              : " extern __shared__ __align__(128) uint space[];",
        " TAKE_ROW\n");
    out += host ? base::text("KERNEL(", spec.name,
                             ")(const struct tandem_arguments *arguments, ulong group, const uint *local)\n")
                : base::text("KERNEL(", spec.name, ")(const __grid_constant__ struct tandem_arguments arguments)\n");
    return out;
  }

  const bool table = spec.binding == Binding::table;
  std::string out, parameters;
  if (table) {
    out += write_row("__global ulong", "offsets", "stripe[i]");
    out += base::text("#define TAKE_ARGUMENTS TAKE_ROW\n#define OFFSET(i) ROW_WORD(", kRowWords, " + (i))\n");
  } else {
    out += "#define TAKE_ARGUMENTS\n#define OFFSET(i) offsets[i]\n#define FIRST_GROUP 0u\n";
  }
  if (spec.binding != Binding::arguments) {
    out +=
        "#define ANY_INPUT(c) (inputs + OFFSET(c))\n#define ANY_OUTPUT(r) (outputs + OFFSET(COLUMNS + (r)))\n"
        "#define INPUT(c) ANY_INPUT(c)\n#define OUTPUT(r) ANY_OUTPUT(r)\n#define TAKE_SHARDS\n";
    parameters = "const __global uchar *inputs, __global uchar *outputs, ";
  } else {
    const std::string inputs = list("INPUT(", matrix.columns(), "), ");
    out += base::text(
        "#define INPUT(c) (in_##c + offsets[c])\n#define OUTPUT(r) (out_##r + offsets[COLUMNS + (r)])\n#define "
        "ANY_INPUT(c) in[c]\n#define ANY_OUTPUT(r) out[r]\n#define TAKE_SHARDS const __global uchar *const in[] = {",
        inputs.empty() ? "0" : inputs, "}; __global uchar *const out[] = {", list("OUTPUT(", matrix.rows(), "), "),
        "};\n");
    parameters =
        list("const __global uchar *in_", matrix.columns(), ", ") + list("__global uchar *out_", matrix.rows(), ", ");
  }
  return out + base::text("KERNEL(", spec.name, ")(", parameters, table ? "const __global" : "__constant",
                          " ulong *offsets, ", table ? "" : "ulong begin, ulong end, ulong length, ",
                          "__global uint *records",
                          tables      ? ", const __global uint *tables, uint columns, uint rows, __local uint *space"
                          : transform ? ", __local uint *space"
                                      : "",
                          ")\n");
}

// Technique `tables`, per word: four data bytes, each a shift and mask by nibble and two XORs. The four outputs of a
// pass are joined from four sums each.
void count_tables(const core::Matrix &matrix, KernelOperations &operations) {
  const std::uint64_t columns = matrix.columns(), rows = matrix.rows();
  const std::uint64_t passes = base::divide_up(rows, kRowsPerTable);
  operations.loads = passes * columns;
  operations.stores = rows;
  operations.table_lookups = passes * columns * 8;
  operations.two_input = passes * columns * 4 * 5 + rows * 14;
  operations.three_input = passes * columns * 4 * 4 + rows * 9;
}

// The steps after the outputs are computed: read and XORed, or read and compared, not written.
void count_finish(std::uint64_t words, core::Mode mode, KernelOperations &operations) {
  if (mode == core::Mode::assign) return;
  operations.loads += words;
  operations.two_input += words;
  operations.three_input += words;
  if (mode == core::Mode::compare) operations.stores -= words;
}

std::string replace(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) base::fail(TANDEM_ERROR_INTERNAL, base::text("kernel text has no ", what));
  return text.replace(at, what.size(), by);
}

}  // namespace

KernelText generate_kernel(const core::Matrix &matrix, const KernelSpec &spec) {
  check(matrix, spec);
  const bool tables = spec.technique == Technique::tables;
  const bool any_shape = tables && (spec.dialect != Dialect::opencl_c || spec.binding != Binding::arguments);
  const KernelTuning &tuning = spec.tuning;
  KernelText kernel;
  // Words of each shard that the text treats at once.
  const unsigned words = spec.technique == Technique::transform ? KernelSpec::kTransformBytes / 4 : 1;
  kernel.operations.data_bytes = std::uint64_t{matrix.columns()} * 4 * words;

  std::string &out = kernel.text;
  out = base::text("#define ELEMENT_BYTES ", tuning.element_bytes, "\n#define ELEMENTS_PER_ITEM ",
                   tuning.elements_per_item, "\n#define ", kModeDefines[static_cast<int>(spec.mode)], "\n#define ",
                   kAccessDefines[static_cast<int>(spec.access)], "\n");
  if (any_shape) {
    out += "#define ROWS rows\n#define COLUMNS columns\n";
  } else {
    out += base::text("#define ROWS ", matrix.rows(), "u\n#define COLUMNS ", matrix.columns(), "u\n");
  }
  out += tables ? "#define TILE_WIDTH (LOCAL_SIZE(0) * LOCAL_SIZE(1))\n" : "#define TILE_WIDTH LOCAL_SIZE(0)\n";
  if (spec.byte_lanes) out += "#define BYTE_LANES\n";
  if (tuning.loads == Loads::streaming) out += "#define LOADS_STREAMING\n";
  if (tuning.loads == Loads::async) out += "#define LOADS_ASYNC\n";
  out += kPreludes[static_cast<int>(spec.dialect)];
  out += text::common_h;
  if (tables) {
    count_tables(matrix, kernel.operations);
    out += write_interface(matrix, spec) + text::tables_h;
  } else if (spec.technique == Technique::transform) {
    const TransformText transform = write_transform(spec, kernel.operations);
    out += text::planes_h + transform.defines + write_matrix(matrix) + write_interface(matrix, spec);
    out += replace(text::transform_h, "    //[phases]\n", transform.phases);
  } else {
    const unsigned pass_count = base::divide_up(matrix.rows(), tuning.rows_per_pass);
    out += base::text("#define PASS_COUNT ", pass_count, "u\n") + write_matrix(matrix) + write_interface(matrix, spec);
    out += replace(text::compiled_h, "            //[passes]\n", write_passes(matrix, spec, kernel.operations));
  }
  count_finish(std::uint64_t{matrix.rows()} * words, spec.mode, kernel.operations);
  return kernel;
}

std::uint64_t kernel_shared_bytes(const KernelSpec &spec, unsigned columns) noexcept {
  const auto &[x, y, z] = spec.tuning.local;
  if (spec.technique == Technique::tables) return std::uint64_t{columns} * kTableBytesPerColumn;
  if (spec.technique == Technique::transform)
    return (std::uint64_t{y} * 8 + spec.points->kept_input_count) * KernelSpec::kTransformBytes * x;
  return spec.tuning.loads == Loads::async ? std::uint64_t{kSlots} * spec.tuning.element_bytes * x * y * z : 0;
}

std::uint64_t KernelRange::record_start(std::uint64_t record) const noexcept {
  if (record < tile_count) return begin + record * tile_bytes;
  return record == tile_count ? 0 : end;
}

std::uint64_t KernelRange::record_end(std::uint64_t record) const noexcept {
  if (record < tile_count) return std::min(end, begin + (record + 1) * tile_bytes);
  return record == tile_count ? begin : length;
}

KernelRange cut_kernel_range(const KernelSpec &spec, std::uint64_t length, std::uint64_t first_output) {
  const KernelTuning &tuning = spec.tuning;
  const std::uint64_t element = tuning.element_bytes;
  if (length > most_launch_bytes(spec.dialect)) {
    base::fail(TANDEM_ERROR_TOO_LARGE,
               base::text("kernel: ", length, " bytes in one launch; at most ", most_launch_bytes(spec.dialect)));
  }
  KernelRange range;
  range.length = length;
  std::uint64_t last = length;  // no element is longer
  if (spec.access == Access::shifted) {
    // Output 0's elements are aligned, so that at least its stores have full width.
    range.begin = kShiftedMargin + (0 - (first_output + kShiftedMargin)) % element;
    last = length > kShiftedMargin ? length - kShiftedMargin : 0;
  }
  if (last < range.begin + element) {
    range.begin = range.end = 0;  // everything is tail
  } else {
    range.end = range.begin + (last - range.begin) / element * element;
  }

  std::uint64_t tile = element;
  for (const std::uint64_t factor : {std::uint64_t{tuning.elements_per_item}, std::uint64_t{tuning.local[0]},
                                     std::uint64_t{spec.technique == Technique::tables ? tuning.local[1] : 1}}) {
    if (factor == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "kernel: a local size is 0");
    if (factor > kMostTileBytes / tile)
      base::fail(TANDEM_ERROR_TOO_LARGE, base::text("kernel: a tile of more than ", kMostTileBytes, " bytes"));
    tile *= factor;
  }
  if (tuning.local[2] == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "kernel: a local size is 0");
  range.tile_bytes = tile;
  range.tile_count = base::divide_up(range.end - range.begin, tile);
  range.group_count = base::divide_up(range.tile_count, tuning.local[2]) + 1;
  range.record_count = range.tile_count + 2;
  if (range.group_count > kMostGroups || range.record_count > UINT32_MAX)
    base::fail(TANDEM_ERROR_TOO_LARGE,
               base::text("kernel: ", range.group_count, " work-groups for ", length, " bytes"));
  return range;
}

KernelBatch cut_kernel_batch(const KernelSpec &spec, std::span<const BatchStripe> stripes) {
  std::vector<KernelRange> ranges;
  ranges.reserve(stripes.size());
  std::uint64_t groups = 0;  // less than 2^31 for each stripe
  for (const BatchStripe &stripe : stripes) {
    ranges.push_back(cut_kernel_range(spec, stripe.length, stripe.first_output));
    groups += ranges.back().group_count - 1;
  }
  const std::uint64_t most = std::max<std::uint64_t>(base::divide_up(groups, stripes.size()), 1);  // of a row
  const std::uint64_t most_bytes = most * spec.tuning.local[2] * ranges.front().tile_bytes;
  KernelBatch batch;
  bool has_ends = false;
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < stripes.size(); ++i) {
    const auto &[starts, length, first_output] = stripes[i];
    const KernelRange &range = ranges[i];
    // Only the first part of a stripe has a head, and only the last one has a tail.
    for (std::uint64_t start = 0, begin = range.begin; start < length; ++rows) {
      const std::uint64_t stop = range.end - begin > most_bytes ? begin + most_bytes : length;
      batch.words.insert(batch.words.end(), {begin - start, std::min(range.end, stop) - start, stop - start});
      has_ends |= begin != start || range.end < stop;
      for (const std::uint64_t each : starts) batch.words.push_back(each + start);
      start = begin = stop;
    }
  }
  batch.group_count = most + has_ends;
  const std::uint64_t z = base::divide_up(rows, kMostGridRows), y = base::divide_up(rows, z);
  if (z > kMostGridRows || batch.group_count > kMostGroups)
    base::fail(TANDEM_ERROR_TOO_LARGE, base::text("kernel: ", stripes.size(), " stripes, ", rows, " rows of a table"));
  batch.y = static_cast<unsigned>(y);
  batch.z = static_cast<unsigned>(z);
  batch.words.resize(y * z * (kRowWords + stripes.front().starts.size()));
  return batch;
}

std::vector<std::uint32_t> pack_nibble_tables(const core::Matrix &matrix) {
  const unsigned passes = base::divide_up(matrix.rows(), kRowsPerTable);
  std::vector<std::uint32_t> words(std::size_t{passes} * matrix.columns() * kWordsPerColumn);
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    for (unsigned c = 0; c < matrix.columns(); ++c) {
      std::uint32_t *table = &words[(std::size_t{r / kRowsPerTable} * matrix.columns() + c) * kWordsPerColumn];
      for (unsigned v = 0; v < 16; ++v) {
        const auto put = [&](std::uint32_t &word, unsigned x) {
          word |= std::uint32_t{core::gf::multiply(matrix.at(r, c), static_cast<std::uint8_t>(x))}
                  << r % kRowsPerTable * 8;
        };
        put(table[v], v);
        put(table[16 + v], v << 4);
      }
    }
  }
  return words;
}

}  // namespace tandem::device
