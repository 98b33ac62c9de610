// SPDX-License-Identifier: Apache-2.0
// The generator of device kernels, through its host dialect: every technique, mode, access, element size and preset is
// compiled by this machine's C compiler, run between guard pages, and compared with the slow reference.
#include "device/kernel_text.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/presets.hpp"
#include "device/built_in.hpp"
#include "device/transform_text.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/core/plain_presets.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::device {
namespace {

using test::Bytes;
using test::Guarded;
using test::Random;
using test::Shards;

constexpr std::uint64_t kSeed = 20261121;

using HostKernel = void (*)(const KernelArguments *, std::uint64_t group, const std::uint32_t *);

// A folder of our own that goes when we go.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/tandem-kernel-text-XXXXXX";
    if (mkdtemp(path) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  const std::filesystem::path &path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// What the CUDA dialect leans on, for a C++ compiler: threads one after the other, so barriers are for one thread.
constexpr char kCudaOnHost[] = R"(
#include <stddef.h>
#define __global__
#define __device__
#define __constant__ const
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __ldg(p) (*(p))
#define __syncthreads()
struct uint2 { unsigned x, y; } __attribute__((aligned(8)));
struct uint4 { unsigned x, y, z, w; } __attribute__((aligned(16)));
static struct { unsigned x, y, z; } threadIdx, blockIdx, blockDim, gridDim;
static unsigned atomicAdd(unsigned *p, unsigned x) { return (*p += x) - x; }
static void atomicMin(unsigned *p, unsigned x) { if (x < *p) *p = x; }
static unsigned shared[256 * 32] __attribute__((aligned(128)));
#define space shared
#define copies shared
// prmt.b32 d, x, y, selector as the PTX ISA defines it, for selectors without signs.
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long both = x | (unsigned long)y << 32;
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= (unsigned)(both >> (selector >> i * 4 & 7) * 8 & 0xff) << i * 8;
  return d;
}
// lop3.b32: each bit of the result is the bit of `table` that the three bits number.
static unsigned LOGIC3(unsigned a, unsigned b, unsigned c, unsigned table) {
  unsigned d = 0;
  for (int i = 0; i < 32; ++i) d |= (table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i;
  return d;
}
#define LOGIC3 LOGIC3
#define XOR3_WORDS(p, pa, pb, q, qa, qb, r, ra, rb, s, sa, sb) \
  (p ^= (pa) ^ (pb), q ^= (qa) ^ (qb), r ^= (ra) ^ (rb), s ^= (sa) ^ (sb))
#define FORGET(x)
// Addresses as on a device: shared memory begins somewhere at a multiple of 128, not of 256.
#define LOCAL_ADDRESS(p) ((uint)((const char *)(p) - (const char *)shared) + 0x12380)
#define LOCAL_WORD(address, offset) (*(const uint *)((const char *)shared + (address) - 0x12380 + (offset)))
#define STREAM_LOAD(p) (*(p))
#define STREAM_STORE(p, value) (*(p) = (value))
// A copy arrives when it is waited for, not before.
static struct { unsigned to; const void *from; unsigned bytes, group; } on_way[16];
static unsigned on_way_count, open_group;
static void copy_start(unsigned to, const void *from, unsigned bytes) {
  __builtin_memset((char *)shared + (to - 0x12380), 0xee, bytes);
  on_way[on_way_count].to = to, on_way[on_way_count].from = from;
  on_way[on_way_count].bytes = bytes, on_way[on_way_count].group = open_group;
  ++on_way_count;
}
static void copy_wait(unsigned still_open) {
  unsigned kept = 0;
  for (unsigned i = 0; i < on_way_count; ++i) {
    if (on_way[i].group + still_open >= open_group) on_way[kept++] = on_way[i];
    else __builtin_memcpy((char *)shared + (on_way[i].to - 0x12380), on_way[i].from, on_way[i].bytes);
  }
  on_way_count = kept;
}
#define COPY_START(to, from) copy_start(to, from, ELEMENT_BYTES)
#define COPY_CLOSE ++open_group
#define COPY_WAIT(open) copy_wait(open)
// prmt.b32 d, x, 0, 0xba98 as the PTX ISA defines it: selector 8 + i is the sign of byte i.
static unsigned SPREAD_SIGNS(unsigned x) {
  unsigned d = 0;
  for (int i = 0; i < 4; ++i) d |= (x >> i * 8 & 0x80 ? 0xffu : 0u) << i * 8;
  return d;
}
#define SPREAD_SIGNS SPREAD_SIGNS
)";

// How a group is run: every thread of it.
std::string cuda_group(const std::string &name) {
  return "extern \"C\" void " + name +
         "_group(const tandem_arguments *arguments, unsigned long group, const unsigned *local) {\n"
         "  blockDim.x = local[0], blockDim.y = local[1], blockDim.z = local[2];\n"
         "  blockIdx.x = (unsigned)group;\n"
         "  gridDim.y = 3, blockIdx.y = (unsigned)arguments->begin % 3, blockIdx.z = (unsigned)arguments->begin / 3;\n"
         "  for (threadIdx.z = 0; threadIdx.z < local[2]; ++threadIdx.z)\n"
         "    for (threadIdx.y = 0; threadIdx.y < local[1]; ++threadIdx.y)\n"
         "      for (threadIdx.x = 0; threadIdx.x < local[0]; ++threadIdx.x) " +
         name + "(*arguments);\n}\n";
}

struct Kernel {
  core::Matrix matrix;  // technique tables: any other of few enough rows and columns will do
  KernelSpec spec;
  KernelText text;
  HostKernel run = nullptr;
};

// Kernels of the host dialect, compiled together.
class Library {
 public:
  Kernel &add(const core::Matrix &matrix, KernelSpec spec) {
    if (spec.dialect != Dialect::cuda_c) spec.dialect = Dialect::host_c;
    if (spec.binding != Binding::table) spec.binding = Binding::arguments;
    spec.name = "kernel_" + std::to_string(kernels_.size());
    kernels_.push_back(std::make_unique<Kernel>(Kernel{matrix, spec, generate_kernel(matrix, spec)}));
    return *kernels_.back();
  }

  void build() {
    // x86 forgives what a device does not: a word at an odd address traps here. Optimising takes longer than it saves.
    std::string command = std::string(TANDEM_TEST_CC) +
                          " -O0 -w -Wno-psabi -fsanitize=alignment,shift -fsanitize-undefined-trap-on-error"
                          " -shared -fPIC -o " +
                          (folder_.path() / "k.so").string();
    for (const auto &kernel : kernels_) {
      const bool cuda = kernel->spec.dialect == Dialect::cuda_c;
      const auto file = folder_.path() / (kernel->spec.name + (cuda ? ".cpp" : ".c"));
      if (cuda) {
        std::string text = kernel->text.text;
        constexpr std::string_view kShared = "extern __shared__ __align__(128) uint space[];";
        if (const auto at = text.find(kShared); at != std::string::npos) text.erase(at, kShared.size());
        std::ofstream(file) << kCudaOnHost << text << cuda_group(kernel->spec.name);
      } else {
        std::ofstream(file) << kernel->text.text;
      }
      command += " " + file.string();
    }
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    handle_ = dlopen((folder_.path() / "k.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle_, nullptr) << dlerror();
    for (const auto &kernel : kernels_) {
      kernel->run = reinterpret_cast<HostKernel>(
          dlsym(handle_, (kernel->spec.name + (kernel->spec.dialect == Dialect::cuda_c ? "_group" : "")).c_str()));
      ASSERT_NE(kernel->run, nullptr) << kernel->spec.name;
    }
  }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  const std::vector<std::unique_ptr<Kernel>> &kernels() const { return kernels_; }

 private:
  Folder folder_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  void *handle_ = nullptr;
};

core::Matrix random_matrix(Random &random, unsigned rows, unsigned columns) {
  core::Matrix matrix(rows, columns);
  for (unsigned r = 0; r < rows; ++r) random.fill(matrix.row(r).data(), columns);
  return matrix;
}

std::string describe(const Kernel &kernel, std::size_t length) {
  static const char *const kModes[] = {"assign", "accumulate", "compare"}, *const kAccess[] = {"aligned", "shifted",
                                                                                               "direct"};
  static const char *const kTechniques[] = {"compiled ", "tables ", "transform "};
  return kTechniques[static_cast<int>(kernel.spec.technique)] + std::string(" ") +
         kModes[static_cast<int>(kernel.spec.mode)] + " " + kAccess[static_cast<int>(kernel.spec.access)] +
         " element " + std::to_string(kernel.spec.tuning.element_bytes) + ", " + std::to_string(kernel.matrix.rows()) +
         " x " + std::to_string(kernel.matrix.columns()) + ", " + std::to_string(length) + " bytes";
}

// A shard that ends `slack` bytes before a forbidden page, or begins at one. The bytes between are canaries.
class Shard {
 public:
  Shard(Random &random, std::size_t bytes, std::size_t slack, bool at_front, std::size_t lead)
      : memory_(bytes + slack + lead, at_front ? Guarded::Against::front : Guarded::Against::back),
        data_(memory_.data() + lead),
        bytes_(bytes),
        all_(bytes + slack + lead),
        lead_(lead) {
    random.fill(memory_.data(), all_);
    before_.assign(memory_.data(), memory_.data() + all_);
  }
  std::uint8_t *data() const { return data_; }
  void make_read_only() { memory_.make_read_only(); }
  // Whether nothing but the shard itself changed since it was made.
  bool surroundings_intact() const {
    return std::memcmp(before_.data(), memory_.data(), lead_) == 0 &&
           std::memcmp(before_.data() + lead_ + bytes_, data_ + bytes_, all_ - lead_ - bytes_) == 0;
  }

 private:
  Guarded memory_;
  std::uint8_t *data_;
  std::size_t bytes_, all_, lead_;
  Bytes before_;
};

// A launch of a kernel: its range, and what the arguments point to.
struct Launch {
  Launch(const Kernel &of, const KernelSpec &spec, const std::vector<std::uint8_t *> &shards, std::size_t length)
      : kernel(of),
        local(spec.tuning.local),
        tables(pack_nibble_tables(of.matrix)),
        space(std::max<std::uint64_t>(kernel_shared_bytes(spec, of.matrix.columns()) / sizeof(std::uint32_t), 1)) {
    arguments.tables = tables.data();
    arguments.space = space.data();
    arguments.columns = of.matrix.columns();
    arguments.rows = of.matrix.rows();
    if (shards.empty()) return;  // Binding::table
    std::copy(shards.begin(), shards.end(), arguments.shards);
    range = cut_kernel_range(spec, length, reinterpret_cast<std::uintptr_t>(shards[of.matrix.columns()]));
    if (spec.mode == core::Mode::compare) records.resize(range.record_bytes(of.matrix.rows()) / 4, UINT32_MAX);
    arguments.begin = range.begin;
    arguments.end = range.end;
    arguments.length = length;
    arguments.records = records.data();
  }
  void run(std::uint64_t group) const { kernel.run(&arguments, group, local.data()); }

  const Kernel &kernel;
  const std::array<unsigned, 3> local;
  const std::vector<std::uint32_t> tables;
  std::vector<std::uint32_t> space, records;
  KernelArguments arguments = {};
  KernelRange range;
};

// Runs a kernel over `length` bytes of shards at alignments of their own, every work-group in a random order.
void check(Random &random, const Kernel &kernel, std::size_t length, std::array<unsigned, 3> local) {
  SCOPED_TRACE(describe(kernel, length));
  const core::Matrix &matrix = kernel.matrix;
  const unsigned rows = matrix.rows(), columns = matrix.columns();
  const bool aligned = kernel.spec.access == Access::aligned;
  KernelSpec spec = kernel.spec;
  spec.tuning.local = local;

  // Aligned shards begin at the forbidden page; the others are at all of 16 offsets, some flush with it on either side.
  // The lengths and shards of one kernel bring every pair of offsets of an input and an output.
  std::vector<Shard> shards;
  shards.reserve(rows + columns);
  for (unsigned i = 0; i < rows + columns; ++i) {
    const std::size_t place = random.below(16);
    if (aligned || place % 4 == 1) {
      shards.emplace_back(random, length, 64 + place, true, aligned ? 0 : place - place % 2);
    } else {
      shards.emplace_back(random, length, place, false, 64);
    }
  }
  std::vector<std::uint8_t *> starts;
  for (const Shard &each : shards) starts.push_back(each.data());
  const std::vector<const std::uint8_t *> inputs(starts.begin(), starts.begin() + columns);
  for (unsigned c = 0; c < columns; ++c) shards[c].make_read_only();
  Shards want = test::expected(matrix.data(), rows, columns, inputs.data(), length);
  struct Found {
    std::uint64_t count = 0, first = UINT64_MAX;
    bool operator==(const Found &) const = default;
  };
  std::vector<Found> want_found(rows), found(rows);
  for (unsigned r = 0; r < rows; ++r) {
    std::uint8_t *output = shards[columns + r].data();
    if (kernel.spec.mode == core::Mode::accumulate)
      for (std::size_t i = 0; i < length; ++i) want[r][i] ^= output[i];
    if (kernel.spec.mode != core::Mode::compare) continue;
    if (r % 3 != 0) std::memcpy(output, want[r].data(), length);  // else about 255 of 256 bytes differ
    for (unsigned n = 0; r % 3 == 1 && n < 3; ++n) output[n == 0 ? length - 1 : random.below(length)] ^= 0x40;
    for (std::size_t i = length; i-- > 0;)
      if (output[i] != want[r][i]) want_found[r] = {want_found[r].count + 1, i};
    shards[columns + r].make_read_only();
  }

  Launch launch(kernel, spec, starts, length);
  const KernelRange &range = launch.range;
  ASSERT_EQ(range.length, length);
  ASSERT_LE(range.begin, range.end);
  ASSERT_LE(range.end, length);
  ASSERT_LT(range.begin + (length - range.end), 200u) << "head and tail are the slow part";
  const auto groups = static_cast<unsigned>(range.group_count);
  for (const unsigned group : random.pick(groups, groups)) launch.run(group);

  for (unsigned r = 0; r < rows; ++r) {
    ASSERT_TRUE(shards[columns + r].surroundings_intact()) << "output " << r;
    if (kernel.spec.mode == core::Mode::compare) continue;
    const std::uint8_t *output = shards[columns + r].data();
    ASSERT_EQ(Bytes(output, output + length), want[r]) << "output " << r;
  }
  if (kernel.spec.mode != core::Mode::compare) return;
  std::uint64_t first_tile = 0, end_tile = 0;
  for (std::uint64_t record = 0; record < range.record_count; ++record) {
    for (unsigned r = 0; r < rows; ++r) {
      const std::uint32_t *pair = &launch.records[(1 + record * rows + r) * 2];
      if (mismatch_count(pair) == 0) continue;
      if (end_tile == 0) first_tile = record;
      end_tile = record + 1;
      found[r].count += mismatch_count(pair);
      found[r].first = std::min(found[r].first, range.record_start(record) + pair[1]);
    }
  }
  for (unsigned r = 0; r < rows; ++r) EXPECT_EQ(found[r], want_found[r]) << "output " << r;
  const FoundTiles tiles = found_tiles(launch.records.data());
  EXPECT_EQ(tiles.first, first_tile);
  EXPECT_EQ(tiles.count, end_tile - first_tile);
}

// Lengths around every border that a kernel's cut has.
std::vector<std::size_t> lengths(const Kernel &kernel, unsigned local_x) {
  const std::size_t element = kernel.spec.tuning.element_bytes;
  const std::size_t tile = element * kernel.spec.tuning.elements_per_item * local_x;
  std::vector<std::size_t> all;
  for (const std::size_t middle : {element, 2 * element, element + 8, tile, 2 * tile + 8, 5 * tile + element})
    for (const std::size_t length : {middle - 1, middle, middle + 1, middle + 5}) all.push_back(length);
  all.insert(all.end(), {1, 2, 3, 7, 15, 16, 17});
  return all;
}

// Every kernel in work-groups of these shapes; none: of its own.
void check_all(Random &random, Library &library, const std::vector<std::array<unsigned, 3>> &shapes = {}) {
  ASSERT_NO_FATAL_FAILURE(library.build());
  for (const auto &kernel : library.kernels()) {
    for (const auto &local : shapes.empty() ? std::vector{kernel->spec.tuning.local} : shapes) {
      for (const std::size_t length : lengths(*kernel, local[0])) {
        check(random, *kernel, length, local);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

class EveryKernel : public testing::TestWithParam<Technique> {};
// A mode and an element with an access, so that three modes bring every pair of a mode, an access and an element. Else
// all accesses, in `make test-all`.
bool is_in_slice(core::Mode mode, unsigned element, Access access, unsigned access_count) {
  return test::runs_every_case() ||
         (static_cast<unsigned>(mode) + std::bit_width(element)) % access_count == static_cast<unsigned>(access);
}

INSTANTIATE_TEST_SUITE_P(KernelText, EveryKernel, testing::Values(Technique::compiled, Technique::tables),
                         [](const auto &test) { return test.param == Technique::tables ? "tables" : "compiled"; });

TEST_P(EveryKernel, ModesAccessesAndElements) {
  Random random(kSeed);
  Library library;
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    for (const Access access : {Access::aligned, Access::shifted, Access::direct}) {
      for (const unsigned element : {4u, 8u, 16u, 32u, 64u}) {
        if (!is_in_slice(mode, element, access, 3)) continue;
        KernelSpec spec;
        spec.technique = GetParam();
        spec.mode = mode;
        spec.access = access;
        spec.tuning.element_bytes = element;
        spec.tuning.elements_per_item = element == 16 ? 3 : 1;
        spec.tuning.rows_per_pass = element == 8 ? 5 : 2;
        library.add(random_matrix(random, 5, 6), spec);
      }
    }
  }
  check_all(random, library, {{4, 1, 1}, {3, 2, 2}, {1, 4, 3}});
}

// The CUDA dialect's own parts: what NVRTC compiles, run thread by thread on the host.
TEST_P(EveryKernel, CudaDialect) {
  Random random(kSeed + 5);
  Library library;
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    for (const Access access : {Access::aligned, Access::shifted}) {
      for (const unsigned element : {4u, 8u, 16u}) {
        if (!is_in_slice(mode, element, access, 2)) continue;
        KernelSpec spec;
        spec.dialect = Dialect::cuda_c;
        spec.technique = GetParam();
        spec.mode = mode;
        spec.access = access;
        spec.tuning.element_bytes = element;
        spec.tuning.elements_per_item = element == 16 ? 2 : 1;
        spec.tuning.rows_per_pass = 3;
        library.add(random_matrix(random, 5, element == 4 ? 37 : 6), spec);  // 37: some loads come after others
        if (spec.technique == Technique::tables || access != Access::aligned) continue;
        for (const Loads loads : {Loads::streaming, Loads::async}) {
          spec.tuning.loads = loads;
          spec.architecture = 80;
          core::Matrix matrix = random_matrix(random, 5, element == 4 ? 37 : 6);
          for (unsigned r = 0; r < 3; ++r) matrix.at(r, 1) = matrix.at(r, 5) = 0;  // not needed by the first pass
          library.add(matrix, spec);
        }
      }
    }
  }
  if (GetParam() == Technique::tables) return check_all(random, library, {{1, 1, 1}});
  check_all(random, library, {{3, 2, 2}});
}

// Points below `most_point`, in ascending order, with scales.
core::CauchyTransform random_form(Random &random, unsigned outputs, unsigned inputs, unsigned most_point = 256) {
  const std::vector<unsigned> picked = random.pick(inputs + outputs, most_point);
  test::Points points(picked.begin(), picked.end());
  const auto middle = points.begin() + inputs;
  std::sort(points.begin(), middle);
  std::sort(middle, points.end());
  return {{points.begin(), middle},
          {middle, points.end()},
          test::random_scales(random, inputs),
          test::random_scales(random, outputs)};
}

// A code with data at the points 0 to k - 1 and parity at the next ones, without scales.
core::CauchyTransform plain_form(unsigned k, unsigned m) {
  return test::transform_of(test::points_from(0, k), test::points_from(k, m));
}

KernelSpec transform_spec(const core::CauchyTransform &form, unsigned rows, unsigned element_bytes) {
  KernelSpec spec;
  spec.technique = Technique::transform;
  spec.points = std::make_shared<const CauchyPoints>(form);
  spec.tuning.element_bytes = element_bytes;
  spec.tuning.elements_per_item = KernelSpec::kTransformBytes / element_bytes;
  spec.tuning.local = {5, rows, 1};
  return spec;
}

// Random points and scales lie in groups that have inputs and outputs. They are next to each other, or everywhere.
TEST(KernelText, Transform) {
  Random random(kSeed + 11);
  Library library;
  const auto add = [&](const core::CauchyTransform &form, KernelSpec spec) {
    library.add(core::Operator(form).dense(), spec);
  };
  unsigned turn = 0;
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    for (const Access access : {Access::aligned, Access::shifted, Access::direct}) {
      const unsigned rows = 1u << turn % 4, element = 4u << turn / 2 % 4;
      KernelSpec spec = transform_spec(random_form(random, 3, 7, turn % 3 == 0 ? 256 : 16), rows, element);
      spec.mode = mode;
      spec.access = access;
      add(spec.points->form, spec);
      ++turn;
    }
  }
  for (const core::Mode mode : {core::Mode::assign, core::Mode::accumulate, core::Mode::compare}) {
    for (const Access access : {Access::aligned, Access::shifted}) {
      KernelSpec spec = transform_spec(random_form(random, 3, 7, 16), 1, 4u << random.below(3));
      spec.dialect = Dialect::cuda_c;  // its threads run one after the other here, so there is one
      spec.tuning.local[0] = 1;
      spec.mode = mode;
      spec.access = access;
      add(spec.points->form, spec);
    }
  }
  for (const auto &[k, m] : {std::pair{1u, 1u}, {38u, 36u}})
    add(plain_form(k, m), transform_spec(plain_form(k, m), 4, 16));
  check_all(random, library);
}

// Stripes of very different lengths, in shards between guard pages, by one table: every row and group in a random
// order.
void check_batch(Random &random, const Kernel &kernel, std::array<unsigned, 3> local) {
  SCOPED_TRACE(describe(kernel, 0));
  const unsigned rows = kernel.matrix.rows(), columns = kernel.matrix.columns();
  KernelSpec spec = kernel.spec;
  spec.tuning.local = local;
  std::vector<std::vector<Shard>> shards;
  std::vector<BatchStripe> stripes;
  std::vector<Shards> want;
  for (const std::size_t length : {1u, 700u, 64u, 5000u, 200u, 15u, 333u, 1024u, 97u}) {
    std::vector<Shard> &own = shards.emplace_back();
    own.reserve(rows + columns);
    BatchStripe &stripe = stripes.emplace_back();
    stripe.length = length;
    std::vector<const std::uint8_t *> inputs;
    for (unsigned i = 0; i < rows + columns; ++i) {
      const std::size_t place = spec.access == Access::aligned ? 0 : random.below(16);
      own.emplace_back(random, length, 64 + place, true, place);
      stripe.starts.push_back(reinterpret_cast<std::uintptr_t>(own[i].data()));
      if (i >= columns) continue;
      inputs.push_back(own[i].data());
      own[i].make_read_only();
    }
    stripe.first_output = stripe.starts[columns];
    want.push_back(test::expected(kernel.matrix.data(), rows, columns, inputs.data(), length));
  }
  const KernelBatch batch = cut_kernel_batch(spec, stripes);
  const std::uint64_t row_words = 3 + rows + columns, row_count = std::uint64_t{batch.y} * batch.z;
  ASSERT_EQ(batch.words.size(), row_count * row_words);
  ASSERT_LE(row_count, 2 * stripes.size());
  std::uint64_t groups = 0;
  for (const BatchStripe &stripe : stripes)
    groups += cut_kernel_range(spec, stripe.length, stripe.first_output).group_count;
  ASSERT_LE(row_count * batch.group_count, 4 * groups) << "too many groups have nothing to do";

  Launch launch(kernel, spec, {}, 0);
  launch.arguments.shards[0] = const_cast<std::uint64_t *>(batch.words.data());
  const auto all = static_cast<unsigned>(row_count * batch.group_count);
  for (const unsigned each : random.pick(all, all)) {
    launch.arguments.begin = each / batch.group_count;
    launch.run(each % batch.group_count);
  }
  for (std::size_t s = 0; s < stripes.size(); ++s) {
    for (unsigned r = 0; r < rows; ++r) {
      const Shard &output = shards[s][columns + r];
      ASSERT_TRUE(output.surroundings_intact()) << "stripe " << s << ", output " << r;
      ASSERT_EQ(Bytes(output.data(), output.data() + stripes[s].length), want[s][r]) << "stripe " << s;
    }
  }
}

TEST_P(EveryKernel, ATableOfStripes) {
  Random random(kSeed + 7);
  Library library;
  for (const Dialect dialect : {Dialect::host_c, Dialect::cuda_c}) {
    for (const Access access : {Access::aligned, Access::shifted}) {
      for (const unsigned element : {4u, 16u}) {
        KernelSpec spec;
        spec.dialect = dialect;
        spec.technique = GetParam();
        spec.binding = Binding::table;
        spec.access = access;
        spec.tuning.element_bytes = element;
        spec.tuning.elements_per_item = element == 4 ? 2 : 1;
        spec.tuning.rows_per_pass = 2;
        library.add(random_matrix(random, 3, 5), spec);
      }
    }
  }
  ASSERT_NO_FATAL_FAILURE(library.build());
  for (const auto &kernel : library.kernels()) {
    const bool is_one_by_one = GetParam() == Technique::tables && kernel->spec.dialect == Dialect::cuda_c;
    for (const std::array<unsigned, 3> &local : {std::array<unsigned, 3>{4, 1, 1}, {1, 2, 3}}) {
      check_batch(random, *kernel, is_one_by_one ? std::array<unsigned, 3>{1, 1, 1} : local);
      if (HasFailure()) return;
    }
  }
}

double three_input_per_byte(const KernelOperations &operations) {
  return static_cast<double>(operations.three_input) / static_cast<double>(operations.data_bytes);
}

bool cuda_transforms(unsigned rows, unsigned columns) {
  return built_in_transforms(Dialect::cuda_c, Vendor::nvidia, 90, rows, columns);
}

// The rule of device/built_in.hpp, by counts.
TEST(KernelText, TransformsTakeFewerOperations) {
  for (const unsigned k : {16u, 24u, 40u, 128u, 200u}) {
    for (const unsigned m : {16u, 24u, 56u}) {
      ASSERT_TRUE(cuda_transforms(m, k));
      KernelSpec compiled, transform = transform_spec(plain_form(k, m), 4, 16);
      compiled.dialect = transform.dialect = Dialect::cuda_c;
      compiled.tuning = built_in_tuning(Vendor::nvidia, m, k);
      const core::Matrix matrix = core::Operator(transform.points->form).dense();
      const double by_matrix = three_input_per_byte(generate_kernel(matrix, compiled).operations);
      const KernelOperations by_points = generate_kernel(matrix, transform).operations;
      EXPECT_LT(three_input_per_byte(by_points) * 1.4, by_matrix) << k << "+" << m;
      EXPECT_EQ(by_points.loads * 4, by_points.data_bytes) << "each byte once";
      EXPECT_EQ(by_points.stores, m * 8u);
    }
  }
  EXPECT_FALSE(cuda_transforms(8, 32));
  EXPECT_TRUE(built_in_transforms(Dialect::cuda_c, Vendor::nvidia, 100, 8, 32)) << "bound by its ALU";
  EXPECT_TRUE(built_in_transforms(Dialect::opencl_c, Vendor::amd, 0, 16, 32));
  EXPECT_FALSE(built_in_transforms(Dialect::opencl_c, Vendor::amd, 0, 16, 31));
  for (const Vendor vendor : {Vendor::nvidia, Vendor::intel, Vendor::other, Vendor::cpu})
    EXPECT_FALSE(built_in_transforms(Dialect::opencl_c, vendor, 0, 16, 64)) << "not counted, or no gain";
  // 57 outputs have a point in at most eight groups. 58 that begin at the end of a group have one in nine.
  EXPECT_TRUE(cuda_transforms(57, 39));
  EXPECT_EQ(CauchyPoints(plain_form(39, 57)).output_group_count, kMostTransformGroups);
  EXPECT_FALSE(cuda_transforms(58, 39));
  EXPECT_EQ(CauchyPoints(plain_form(39, 58)).output_group_count, kMostTransformGroups + 1);
}

TEST(KernelText, RefusesTransformsThatNoKernelHas) {
  const core::CauchyTransform form = plain_form(9, 3);
  const core::Matrix matrix = core::Operator(form).dense();
  const auto refused = [&](auto change) {
    KernelSpec spec = transform_spec(form, 4, 16);
    change(spec);
    EXPECT_THROW(generate_kernel(matrix, spec), base::Error);
  };
  EXPECT_NO_THROW(generate_kernel(matrix, transform_spec(form, 4, 16)));
  EXPECT_THROW(generate_kernel(core::Matrix(3, 8), transform_spec(form, 4, 16)), base::Error);
  refused([](KernelSpec &spec) { spec.points = nullptr; });
  refused([](KernelSpec &spec) { spec.tuning.elements_per_item = 1; });
  refused([](KernelSpec &spec) { spec.tuning.local[1] = 3; });
  refused([](KernelSpec &spec) { spec.tuning.local[0] = 0; });
  refused([](KernelSpec &spec) { spec.tuning.local[1] = 16; });
  refused([](KernelSpec &spec) { spec.tuning.local[2] = 2; });
  refused([](KernelSpec &spec) { spec.dialect = Dialect::cuda_c, spec.tuning.loads = Loads::streaming; });
  // Four groups of planes, and the one data shard in the group of the parity shards.
  EXPECT_EQ(kernel_shared_bytes(transform_spec(form, 4, 16), 9), (4 * 8 + 1) * 32 * 5u);
}

TEST(KernelText, TransformOfATableOfStripes) {
  Random random(kSeed + 12);
  Library library;
  for (const Access access : {Access::aligned, Access::shifted}) {
    KernelSpec spec = transform_spec(random_form(random, 5, 12, 24), 4, 16);
    spec.binding = Binding::table;
    spec.access = access;
    library.add(core::Operator(spec.points->form).dense(), spec);
  }
  ASSERT_NO_FATAL_FAILURE(library.build());
  for (const auto &kernel : library.kernels()) check_batch(random, *kernel, kernel->spec.tuning.local);
}

// A grid has 65,535 rows at most in one direction. Stripes of one length have a row each and no idle group.
TEST(KernelText, CutsBatches) {
  KernelSpec spec;
  spec.binding = Binding::table;
  spec.tuning.local = {4, 1, 1};
  const std::vector<BatchStripe> many(70'001, BatchStripe{{64, 128}, 640, 128});
  const KernelBatch batch = cut_kernel_batch(spec, many);
  EXPECT_EQ(batch.group_count, 10u) << "a group for heads and tails that no stripe has";
  EXPECT_EQ(batch.z, 2u);
  EXPECT_EQ(batch.y, 35'001u);
  ASSERT_EQ(batch.words.size(), 70'002u * 5);
  EXPECT_EQ(std::vector(batch.words.begin() + 5, batch.words.begin() + 10),
            (std::vector<std::uint64_t>{0, 640, 640, 64, 128}));
  EXPECT_EQ(std::vector(batch.words.end() - 5, batch.words.end()), std::vector<std::uint64_t>(5));
  // One that is 1000 times as long as the others, of no whole number of tiles, is cut.
  std::vector<BatchStripe> uneven(9, BatchStripe{{0, 1 << 20}, 64, 1 << 20});
  uneven[4].length = 64'008;
  const KernelBatch cut = cut_kernel_batch(spec, uneven);
  EXPECT_EQ(cut.group_count, 113u);  // 1008 groups of 64 bytes by 9, and one for head and tail
  ASSERT_EQ(cut.words.size(), 17u * 5);
  EXPECT_EQ(std::vector(cut.words.begin() + 60, cut.words.begin() + 65),
            (std::vector<std::uint64_t>{0, 6656, 6664, 8 * 7168, (1 << 20) + 8 * 7168}));
  BatchStripe long_one{{0, 0}, std::uint64_t{1} << 45, 0};
  EXPECT_THROW(cut_kernel_batch(spec, {&long_one, 1}), base::Error);
  spec.mode = core::Mode::compare;
  EXPECT_THROW(generate_kernel(core::Matrix(1, 1), spec), base::Error);
}

// Offsets beyond 32 bits, in the longest shards that one launch takes, of which the last pages alone are ever touched:
// some 2^31 elements of 4 bytes. A byte of the tail is group 0's.
TEST_P(EveryKernel, OffsetsBeyond32Bits) {
  constexpr std::size_t kLength = most_launch_bytes(Dialect::cuda_c) - 31, kTouched = 150'000;
  Random random(kSeed + 6);
  Library library;
  for (const Dialect dialect : {Dialect::host_c, Dialect::cuda_c}) {
    KernelSpec spec;
    spec.dialect = dialect;
    spec.technique = GetParam();
    spec.access = Access::aligned;
    if (spec.technique == Technique::tables) spec.tuning.local = {1, 1, 1};  // the host has one thread's barriers
    for (const unsigned element : {4u, 16u}) {
      spec.tuning.element_bytes = element;
      library.add(random_matrix(random, 2, 2), spec);
    }
  }
  ASSERT_NO_FATAL_FAILURE(library.build());
  for (const auto &each : library.kernels()) {
    const Kernel &kernel = *each;
    SCOPED_TRACE(describe(kernel, kLength));
    std::vector<std::uint8_t *> shards;
    for (unsigned i = 0; i < 4; ++i) {
      void *mapped = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      ASSERT_NE(mapped, MAP_FAILED);
      shards.push_back(static_cast<std::uint8_t *>(mapped));
      if (i < 2) random.fill(shards[i] + kLength - kTouched, kTouched);
    }
    const Launch launch(kernel, kernel.spec, shards, kLength);
    const std::uint64_t group_bytes = launch.range.tile_bytes * kernel.spec.tuning.local[2];
    const std::uint64_t first = (kLength - kTouched) / group_bytes + 1;
    launch.run(0);
    for (std::uint64_t group = first + 1; group < launch.range.group_count; ++group) launch.run(group);
    const std::uint8_t *const inputs[] = {shards[0] + first * group_bytes, shards[1] + first * group_bytes};
    const std::size_t length = kLength - first * group_bytes;
    const Shards want = test::expected(kernel.matrix.data(), 2, 2, inputs, length);
    for (unsigned r = 0; r < 2; ++r) {
      const std::uint8_t *output = shards[2 + r] + first * group_bytes;
      EXPECT_EQ(Bytes(output, output + length), want[r]);
      EXPECT_EQ(output[-1], 0);
    }
    for (std::uint8_t *shard : shards) munmap(shard, kLength);
  }
}

TEST_P(EveryKernel, PresetsAndOddShapes) {
  Random random(kSeed + 2);
  Library library;
  const auto add = [&](const core::Matrix &matrix, unsigned rows_per_pass, unsigned element, core::Mode mode) {
    KernelSpec spec;
    spec.technique = GetParam();
    spec.mode = mode;
    spec.access = Access::direct;
    spec.tuning.element_bytes = element;
    spec.tuning.rows_per_pass = rows_per_pass;
    library.add(matrix, spec);
  };
  for (const core::Preset &preset : test::plain_presets())
    add(preset.make(8, preset.value == TANDEM_MATRIX_RAID6 ? 2 : 3), 4, 16, core::Mode::assign);
  add(core::find_preset(0)->make(10, 4), 4, 16, core::Mode::assign);
  add(core::find_preset(0)->make(12, 9), 4, 16, core::Mode::compare);
  add(random_matrix(random, 1, 1), 1, 8, core::Mode::accumulate);
  add(random_matrix(random, 1, 255), 1, 16, core::Mode::assign);
  add(random_matrix(random, 255, 1), 7, 16, core::Mode::compare);
  add(random_matrix(random, 20, 31), 4, 32, core::Mode::assign);
  add(core::Matrix(3, 0), 2, 16, core::Mode::assign);  // the sum of nothing is zero
  add(core::Matrix(3, 0), 2, 16, core::Mode::accumulate);
  add(core::Matrix(3, 5), 2, 16, core::Mode::compare);  // zeros throughout
  core::Matrix sparse(4, 9);
  for (unsigned i = 0; i < 9; ++i) sparse.at(i % 4, i) = static_cast<std::uint8_t>(i == 3 ? 0x80 : 1);
  add(sparse, 4, 16, core::Mode::assign);
  ASSERT_NO_FATAL_FAILURE(library.build());
  for (const auto &kernel : library.kernels()) {
    for (const std::size_t length : {1u, 63u, 64u, 1000u, 4099u}) {
      check(random, *kernel, length, {8, 3, 2});
      if (HasFailure()) return;
    }
  }
}

// One text of technique tables serves every matrix, k + m = 256 too.
TEST(KernelText, TablesServeEveryMatrix) {
  Random random(kSeed + 3);
  Library library;
  KernelSpec spec;
  spec.technique = Technique::tables;
  spec.access = Access::shifted;
  library.add(core::Matrix(1, 1), spec);
  ASSERT_NO_FATAL_FAILURE(library.build());
  Kernel kernel = *library.kernels()[0];
  for (const auto &[rows, columns] : {std::pair{128u, 128u}, {4u, 252u}, {255u, 1u}, {1u, 255u}, {3u, 7u}}) {
    kernel.matrix = random_matrix(random, rows, columns);
    EXPECT_EQ(generate_kernel(kernel.matrix, kernel.spec).text, kernel.text.text);
    check(random, kernel, 2500, {16, 2, 1});
  }
}

// The counts are of the text itself.
TEST(KernelText, CountsOperations) {
  Random random(kSeed + 4);
  for (const auto &[rows, columns] : {std::pair{4u, 10u}, {2u, 4u}, {8u, 32u}, {3u, 1u}}) {
    const core::Matrix matrix = random_matrix(random, rows, columns);
    const KernelText kernel = generate_kernel(matrix, {});
    std::istringstream lines(kernel.text);
    std::uint64_t xors = 0, steps = 0, loads = 0, stores = 0;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("if (pass == ") != std::string::npos) inside = true;
      if (line.find("} else {") != std::string::npos) inside = false;
      if (!inside) continue;
      xors += static_cast<std::uint64_t>(std::count(line.begin(), line.end(), '^'));
      steps += line.find("= HORNER(") != std::string::npos;
      loads += line.find("LOAD(AT(INPUT(") != std::string::npos;
      stores += line.find("FINISH(") != std::string::npos;
    }
    EXPECT_EQ(kernel.operations.two_input, xors + 8 * steps);
    EXPECT_EQ(kernel.operations.loads, loads);
    EXPECT_EQ(kernel.operations.stores, stores);
    EXPECT_EQ(kernel.operations.data_bytes, columns * 4u);
    KernelSpec spec;
    spec.mode = core::Mode::compare;
    const KernelText compare = generate_kernel(matrix, spec);
    EXPECT_EQ(compare.operations.loads, loads + rows);
    EXPECT_EQ(compare.operations.stores, 0u);
  }
  // About 0.25 m + 0.69 + 7 m / k three-input operations a byte: what the arithmetic of bit-accumulators leads one to
  // expect of a dense matrix.
  const KernelText rs = generate_kernel(core::find_preset(0)->make(10, 4), {});
  EXPECT_NEAR(three_input_per_byte(rs.operations), 0.25 * 4 + 0.69 + 7 * 4 / 10.0, 0.6);
  EXPECT_GT(rs.operations.two_input, rs.operations.three_input);
}

// What a work-item loads at once, for each kind of device.
TEST(KernelText, BuiltInTuning) {
  const auto built_in = [](Vendor vendor, unsigned rows, unsigned columns) {
    const KernelTuning tuning = built_in_tuning(vendor, rows, columns);
    return std::array{tuning.element_bytes, tuning.rows_per_pass, tuning.local[0]};
  };
  using Values = std::array<unsigned, 3>;
  EXPECT_EQ(built_in(Vendor::nvidia, 2, 16), (Values{16, 2, 128}));
  EXPECT_EQ(built_in(Vendor::nvidia, 2, 17), (Values{8, 2, 128}));
  EXPECT_EQ(built_in(Vendor::nvidia, 4, 10), (Values{8, 4, 128}));
  EXPECT_EQ(built_in(Vendor::nvidia, 10, 20), (Values{4, 10, 128}));
  EXPECT_EQ(built_in(Vendor::nvidia, 11, 20), (Values{4, 8, 128}));
  EXPECT_EQ(built_in(Vendor::nvidia, 255, 1), (Values{4, 8, 128}));
  EXPECT_EQ(built_in(Vendor::amd, 4, 10), (Values{8, 4, 256}));
  EXPECT_EQ(built_in(Vendor::amd, 2, 64), (Values{4, 2, 256}));
  EXPECT_EQ(built_in(Vendor::intel, 1, 10), (Values{16, 1, 256}));
  EXPECT_EQ(built_in(Vendor::intel, 4, 10), (Values{4, 4, 256}));
  EXPECT_EQ(built_in(Vendor::intel, 6, 10), (Values{4, 4, 256}));
  EXPECT_EQ(built_in(Vendor::other, 4, 10), (Values{8, 4, 256}));
  EXPECT_EQ(built_in(Vendor::cpu, 4, 10), (Values{64, 4, 64}));
}

TEST(KernelText, RefusesWhatMakesNoKernel) {
  const auto refused = [](const core::Matrix &matrix, const std::function<void(KernelSpec &)> &change) {
    KernelSpec spec;
    change(spec);
    try {
      generate_kernel(matrix, spec);
    } catch (const base::Error &error) {
      return error.status() == TANDEM_ERROR_INVALID_ARGUMENT;
    }
    return false;
  };
  const core::Matrix matrix(2, 3);
  for (const unsigned bytes : {0u, 1u, 2u, 3u, 12u, 128u, 0x80000000u})
    EXPECT_TRUE(refused(matrix, [&](KernelSpec &spec) { spec.tuning.element_bytes = bytes; })) << bytes;
  for (const unsigned count : {0u, 65u, 0xffffffffu})
    EXPECT_TRUE(refused(matrix, [&](KernelSpec &spec) { spec.tuning.elements_per_item = count; })) << count;
  EXPECT_TRUE(refused(matrix, [](KernelSpec &spec) { spec.tuning.rows_per_pass = 0; }));
  EXPECT_TRUE(refused(matrix, [](KernelSpec &spec) { spec.name.clear(); }));
  EXPECT_TRUE(refused(core::Matrix(0, 3), [](KernelSpec &) {}));
  EXPECT_TRUE(refused(core::Matrix(129, 128), [](KernelSpec &) {}));
  EXPECT_TRUE(refused(matrix, [](KernelSpec &spec) {
    spec.dialect = Dialect::cuda_c;
    spec.tuning.element_bytes = 32;
  }));
  EXPECT_FALSE(refused(matrix, [](KernelSpec &) {}));

  for (const Loads loads : {Loads::streaming, Loads::async}) {
    const auto with = [&](Dialect dialect, Technique technique, Access access, unsigned architecture) {
      return refused(matrix, [&](KernelSpec &spec) {
        spec.dialect = dialect;
        spec.technique = technique;
        spec.access = access;
        spec.architecture = architecture;
        spec.tuning.loads = loads;
      });
    };
    EXPECT_FALSE(with(Dialect::cuda_c, Technique::compiled, Access::aligned, 80));
    EXPECT_EQ(with(Dialect::cuda_c, Technique::compiled, Access::aligned, 75), loads == Loads::async);
    EXPECT_TRUE(with(Dialect::cuda_c, Technique::compiled, Access::shifted, 90));
    EXPECT_TRUE(with(Dialect::cuda_c, Technique::tables, Access::aligned, 90));
    EXPECT_TRUE(with(Dialect::opencl_c, Technique::compiled, Access::aligned, 90));
    EXPECT_TRUE(with(Dialect::host_c, Technique::compiled, Access::aligned, 90));
  }
}

TEST(KernelText, SharedMemory) {
  KernelSpec spec;
  spec.dialect = Dialect::cuda_c;
  spec.tuning.element_bytes = 8;
  spec.tuning.local = {64, 2, 3};
  EXPECT_EQ(kernel_shared_bytes(spec, 200), 0u);
  spec.tuning.loads = Loads::async;
  EXPECT_EQ(kernel_shared_bytes(spec, 200), 8u * 8 * 64 * 2 * 3);
  spec.tuning.loads = Loads::plain;
  spec.technique = Technique::tables;
  EXPECT_EQ(kernel_shared_bytes(spec, 200), 200u * 128);
}

TEST(KernelText, CutsRanges) {
  KernelSpec spec;
  spec.dialect = Dialect::host_c;
  spec.tuning.local = {64, 1, 2};
  const KernelRange range = cut_kernel_range(spec, (1ull << 40) + 5, 0);
  EXPECT_EQ(range.end, 1ull << 40);
  EXPECT_EQ(range.tile_bytes, 1024u);
  EXPECT_EQ(range.tile_count, 1ull << 30);
  EXPECT_EQ(range.group_count, (1ull << 29) + 1);
  EXPECT_EQ(range.record_start(3), 3072u);
  EXPECT_EQ(range.record_start(range.tile_count), 0u);
  EXPECT_EQ(range.record_start(range.tile_count + 1), 1ull << 40);
  spec.tuning.local = {1, 1, 1};
  EXPECT_THROW(cut_kernel_range(spec, 1ull << 40, 0), base::Error);
  spec.tuning.local = {0x80000000u, 1, 1};
  EXPECT_THROW(cut_kernel_range(spec, 100, 0), base::Error);
  spec.tuning.local = {64, 0, 1};
  spec.technique = Technique::tables;
  EXPECT_THROW(cut_kernel_range(spec, 100, 0), base::Error);
  for (const Dialect dialect : {Dialect::cuda_c, Dialect::opencl_c}) {
    spec = {};
    spec.dialect = dialect;
    const std::uint64_t most = most_launch_bytes(dialect);
    EXPECT_EQ(cut_kernel_range(spec, most, 0).tile_count, most / 1024);
    EXPECT_THROW(cut_kernel_range(spec, most + 1, 0), base::Error);
  }
  spec = {};
  spec.access = Access::shifted;
  for (std::uint64_t address = 0; address < 40; ++address) {
    const KernelRange shifted = cut_kernel_range(spec, 1000, address);
    EXPECT_EQ((address + shifted.begin) % 16, 0u);
    EXPECT_GE(shifted.begin, 4u);
    EXPECT_LE(shifted.end, 996u);
  }
}

}  // namespace
}  // namespace tandem::device
