// SPDX-License-Identifier: Apache-2.0
// The PTX that NVRTC makes of generated kernels runs in an interpreter with checks (interpreter.hpp), without a GPU.
// The results are those of the slow reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "core/presets.hpp"
#include "device/built_in.hpp"
#include "device/transform_text.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/gpu/ptx/kernel.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Mode;
using device::Access;
using device::Binding;
using device::Loads;
using device::Technique;

struct Case {
  unsigned k, m;
  Technique technique;
  Mode mode;
  Access access;
  bool is_batch = false;
  Loads loads = Loads::plain;
  unsigned element_bytes = 0, rows_per_pass = 0;  // 0: the built-in tuning

  std::string name() const {
    static constexpr const char *kModes[] = {"assign", "accumulate", "compare"},
                                *kLoads[] = {"", " streaming", " async"};
    return std::to_string(k) + "+" + std::to_string(m) + " " + device::kTechniqueNames[static_cast<int>(technique)] +
           " " + (is_batch ? "batch" : kModes[static_cast<int>(mode)]) +
           (access == Access::aligned ? " aligned" : " shifted") + kLoads[static_cast<int>(loads)];
  }
};

// Each technique with each mode, access and a batch, and loads that only CUDA has. Small codes: NVRTC takes long.
std::vector<Case> some_cases() {
  std::vector<Case> all;
  for (const auto &[technique, k, m] :
       {std::tuple{Technique::compiled, 5u, 3u}, {Technique::tables, 5u, 6u}, {Technique::transform, 9u, 3u}}) {
    for (const Access access : {Access::aligned, Access::shifted}) {
      for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
        all.push_back({k, m, technique, mode, access});
      all.push_back({k, m, technique, Mode::assign, access, true});
    }
  }
  for (const Loads loads : {Loads::streaming, Loads::async})
    all.push_back({10, 4, Technique::compiled, Mode::assign, Access::aligned, false, loads});
  return all;
}

std::vector<Case> all_cases() {
  std::vector<Case> all = some_cases();
  for (const auto &[k, m] : {std::pair{4u, 2u}, {10u, 4u}, {20u, 10u}}) {
    for (const Technique technique : {Technique::compiled, Technique::tables}) {
      for (const Access access : {Access::aligned, Access::shifted}) {
        for (const Mode mode : {Mode::assign, Mode::accumulate, Mode::compare})
          all.push_back({k, m, technique, mode, access});
        all.push_back({k, m, technique, Mode::assign, access, true});
      }
    }
    for (const Loads loads : {Loads::streaming, Loads::async})
      all.push_back({k, m, Technique::compiled, Mode::assign, Access::aligned, false, loads});
  }
  for (const auto &[k, m] : {std::pair{20u, 10u}, {64u, 16u}})
    for (const Access access : {Access::aligned, Access::shifted})
      for (const Mode mode : {Mode::assign, Mode::compare}) all.push_back({k, m, Technique::transform, mode, access});
  for (const Access access : {Access::aligned, Access::shifted})
    all.push_back({20, 10, Technique::transform, Mode::assign, access, true});
  all.push_back({32, 8, Technique::compiled, Mode::compare, Access::aligned, false, Loads::async, 16, 3});
  return all;
}

// A kernel of a case, and its PTX.
struct Kernel {
  core::Matrix matrix{0, 0};
  device::KernelSpec spec;
  std::string ptx;
  std::uint64_t output_offset = 0;  // of output 0, with access shifted: where elements begin depends on it

  Kernel(const Case &of, const ptx::Nvrtc &nvrtc) : matrix(core::find_preset(0)->make(of.k, of.m)) {
    spec.dialect = device::Dialect::cuda_c;
    spec.binding = of.is_batch ? Binding::table : Binding::arguments;
    spec.technique = of.technique;
    spec.mode = of.mode;
    spec.access = of.access;
    spec.architecture = of.loads == Loads::async ? 80 : 75;
    spec.tuning = device::built_in_tuning(device::Vendor::nvidia, of.m, of.k);
    if (of.element_bytes != 0) spec.tuning.element_bytes = of.element_bytes;
    if (of.rows_per_pass != 0) spec.tuning.rows_per_pass = of.rows_per_pass;
    if (of.technique == Technique::transform) {
      spec.tuning = device::transform_tuning();
      spec.points = std::make_shared<const device::CauchyPoints>(
          transform_of(points_from(0, of.k), points_from(of.k, of.m)));  // of this preset
    }
    spec.tuning.loads = of.loads;
    ptx = nvrtc.compile(device::generate_kernel(matrix, spec).text, spec.architecture);
  }
};

// The shards of a stripe in memory of their own, where nothing lies behind or before them that a kernel may use.
struct Stripe {
  Stripe(const Kernel &kernel, std::uint64_t length, Random &random) : bytes(length) {
    const unsigned columns = kernel.matrix.columns(), count = columns + kernel.matrix.rows();
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t offset = kernel.spec.access == Access::aligned ? 0
                                   : i == columns                        ? kernel.output_offset
                                                                         : random.below(16);
      memory.push_back({static_cast<std::uint8_t *>(std::aligned_alloc(64, (length + 127) / 64 * 64)), std::free});
      shards.push_back(memory.back().get() + offset);
      random.fill(shards.back(), length);
    }
    right = expected(kernel.matrix.data(), kernel.matrix.rows(), columns, shards.data(), length);
    for (unsigned i = 0; i < count; ++i) before.emplace_back(shards[i], shards[i] + length);
    for (unsigned r = 0; r < right.size(); ++r) {
      std::uint8_t *output = shards[columns + r];
      if (kernel.spec.mode == Mode::accumulate)
        for (std::uint64_t i = 0; i < length; ++i) right[r][i] ^= output[i];
      if (kernel.spec.mode != Mode::compare) continue;
      if (r % 3 != 2) std::copy(right[r].begin(), right[r].end(), output);  // else about 255 of 256 bytes differ
      for (unsigned i = 0; r % 3 == 1 && i < 4; ++i) output[i == 0 ? length - 1 : random.below(length)] ^= 0x40;
      before[columns + r].assign(output, output + length);
    }
  }

  // "" or what is wrong.
  std::string check(const Kernel &kernel) const {
    const unsigned columns = kernel.matrix.columns();
    for (unsigned i = 0; i < shards.size(); ++i) {
      const Bytes &want = i < columns || kernel.spec.mode == Mode::compare ? before[i] : right[i - columns];
      const auto [at, wanted] = std::mismatch(shards[i], shards[i] + bytes, want.begin());
      if (wanted != want.end())
        return "shard " + std::to_string(i) + " is wrong at byte " + std::to_string(at - shards[i]) + " of " +
               std::to_string(bytes);
    }
    return "";
  }

  std::uint64_t bytes;
  std::vector<std::unique_ptr<std::uint8_t, void (*)(void *)>> memory;
  std::vector<std::uint8_t *> shards;
  Shards before, right;
};

// Changes a launch before it is made: for tests of what has to fail.
using Change = std::function<void(ptx::Launch &)>;

// Runs a kernel on stripes of these lengths. "" or what is wrong; throws Error if the kernel does what it must not.
std::string run(const Kernel &kernel, const ptx::Module &module, const std::vector<std::uint64_t> &lengths,
                Random &random, const Change &change = nullptr) {
  const device::KernelSpec &spec = kernel.spec;
  const unsigned rows = kernel.matrix.rows(), columns = kernel.matrix.columns();
  std::vector<Stripe> stripes;
  for (const std::uint64_t each : lengths) stripes.emplace_back(kernel, each, random);
  device::KernelArguments arguments = {};
  arguments.rows = rows;
  arguments.columns = columns;
  std::vector<std::uint32_t> tables, records;
  if (spec.technique == Technique::tables) tables = device::pack_nibble_tables(kernel.matrix);
  arguments.tables = tables.data();
  std::array<unsigned, 3> grid = {1, 1, 1};
  device::KernelBatch batch;
  device::KernelRange range;
  const auto first_output = [&](const Stripe &stripe) {
    return reinterpret_cast<std::uint64_t>(stripe.shards[columns]);
  };
  if (spec.binding == Binding::table) {
    std::vector<device::BatchStripe> list;
    for (const Stripe &each : stripes) {
      device::BatchStripe &stripe = list.emplace_back();
      for (const std::uint8_t *shard : each.shards) stripe.starts.push_back(reinterpret_cast<std::uint64_t>(shard));
      stripe.length = each.bytes;
      stripe.first_output = first_output(each);
    }
    batch = device::cut_kernel_batch(spec, list);
    // A row of zeros, in a second plane of the grid.
    batch.y = (batch.y * batch.z + 2) / 2;
    batch.words.resize(std::size_t{batch.y} * 2 * (3 + rows + columns));
    grid = {static_cast<unsigned>(batch.group_count), batch.y, 2};
    arguments.shards[0] = batch.words.data();
  } else {
    const Stripe &stripe = stripes.front();
    for (unsigned i = 0; i < stripe.shards.size(); ++i) arguments.shards[i] = stripe.shards[i];
    range = device::cut_kernel_range(spec, stripe.bytes, first_output(stripe));
    arguments.begin = range.begin;
    arguments.end = range.end;
    arguments.length = range.length;
    grid[0] = static_cast<unsigned>(range.group_count);
    records.assign(range.record_bytes(rows) / sizeof(std::uint32_t), ~std::uint32_t{0});
    if (spec.mode == Mode::compare) arguments.records = records.data();
  }
  ptx::Launch launch = ptx::launch_of(spec, arguments, grid, device::kernel_shared_bytes(spec, columns), random.next());
  if (change) change(launch);
  module.run(launch);
  for (const Stripe &each : stripes)
    if (const std::string wrong = each.check(kernel); !wrong.empty()) return wrong;
  if (spec.mode != Mode::compare) return "";
  std::uint64_t first_tile = UINT64_MAX, end_tile = 0;
  for (unsigned r = 0; r < rows; ++r) {
    const Stripe &stripe = stripes.front();
    for (std::uint64_t n = 0; n < range.record_count; ++n) {
      std::uint32_t count = 0, first = ~0u;
      const std::uint64_t start = range.record_start(n);
      for (std::uint64_t i = range.record_end(n); i-- > start;) {
        if (stripe.shards[columns + r][i] == stripe.right[r][i]) continue;
        ++count;
        first = static_cast<std::uint32_t>(i - start);
      }
      const std::uint32_t *record = &records[(1 + n * rows + r) * 2];
      if (device::mismatch_count(record) != count || record[1] != first)
        return "record " + std::to_string(n) + " of output " + std::to_string(r) + ": " +
               std::to_string(device::mismatch_count(record)) + " instead of " + std::to_string(count);
      if (count != 0) first_tile = std::min(first_tile, n), end_tile = std::max(end_tile, n + 1);
    }
  }
  const device::FoundTiles tiles = device::found_tiles(records.data());
  if (end_tile == 0 ? tiles.count != 0 : tiles.first != first_tile || tiles.first + tiles.count != end_tile)
    return "tiles " + std::to_string(tiles.first) + " to " + std::to_string(tiles.first + tiles.count);
  return "";
}

// Around an element and a tile.
std::vector<std::uint64_t> lengths_of(const device::KernelSpec &spec) {
  const std::uint64_t element = spec.tuning.element_bytes, tile = device::cut_kernel_range(spec, 1, 0).tile_bytes;
  return {1,        3,    17,       element - 1,   element,           element + 1, 2 * element + 5,
          tile - 1, tile, tile + 1, 2 * tile + 11, 3 * tile + element};
}

std::vector<std::array<unsigned, 3>> shapes_of(const device::KernelSpec &spec) {
  if (spec.technique == Technique::transform) return {spec.tuning.local};  // in the text
  return {{64, 1, 1}, {32, 2, 2}, {40, 1, 1}, {16, 4, 1}};
}

class CudaPtx : public testing::Test {
 protected:
  void SetUp() override {
    if (ptx::nvrtcs().empty()) GTEST_SKIP() << "NOT RUN: no NVRTC: tests/gpu/nvrtc.py BUILD/nvrtc takes it from PyPI";
  }
};

// `all`: every shape, and every length around an element and a tile. Else one shape. Always ends of every length: what
// an element may read before and behind itself has to fit.
void run_case(const Case &each, const ptx::Nvrtc &nvrtc, bool all) {
  SCOPED_TRACE(each.name() + ", NVRTC " + nvrtc.version());
  Random random(slice_seed());
  try {
    Kernel kernel(each, nvrtc);
    kernel.output_offset = random.below(16);
    const ptx::Module module(kernel.ptx);
    auto shapes = shapes_of(kernel.spec);
    if (!all) shapes = {shapes[random.below(shapes.size())]};
    for (const auto &shape : shapes) {
      kernel.spec.tuning.local = shape;
      const auto around = lengths_of(kernel.spec);
      std::vector<std::vector<std::uint64_t>> launches;  // lengths of each
      if (each.is_batch) {
        launches.emplace_back();
        for (unsigned i = 0; i < 5; ++i) launches[0].push_back(around[random.below(around.size())]);
      } else {
        const std::uint64_t element = kernel.spec.tuning.element_bytes;
        for (std::uint64_t i = 2 * element; i < 3 * element + 8; ++i) launches.push_back({i});
        for (const std::uint64_t length : all ? around : std::vector{around[around.size() - 2]})
          launches.push_back({length});
      }
      for (const auto &lengths : launches)
        ASSERT_EQ(run(kernel, module, lengths, random), "")
            << lengths[0] << " bytes, " << shape[0] << " x " << shape[1] << " x " << shape[2];
    }
  } catch (const std::exception &error) {
    FAIL() << error.what();
  }
}

TEST_F(CudaPtx, EveryTechniqueAccessModeAndBatch) {
  for (const auto &nvrtc : ptx::nvrtcs()) {
    const bool is_newest = nvrtc == ptx::nvrtcs().front();
    Slice slice(is_newest ? 1 : 6);
    unsigned count = 0;
    for (const Case &each : runs_every_case() ? all_cases() : some_cases()) {
      if (!slice.takes()) continue;
      run_case(each, *nvrtc, runs_every_case());
      ++count;
    }
    std::printf("NVRTC %s: %u kernels\n", nvrtc->version().c_str(), count);
  }
  if (ptx::nvrtcs().size() < 2) std::printf("NOT RUN: the oldest NVRTC: tests/gpu/nvrtc.py takes it from PyPI\n");
}

// Whether two launches show that the kernel's text was changed, or its launch.
bool is_noticed(const Kernel &kernel, const std::string &text, const Change &change = nullptr) {
  Random random(slice_seed());
  const auto lengths = lengths_of(kernel.spec);
  try {
    const ptx::Module module(text);
    for (const std::uint64_t each : {*(lengths.end() - 2), lengths.back()})
      if (!run(kernel, module, {each}, random, change).empty()) return true;
  } catch (const ptx::Error &) {
    return true;
  }
  return false;
}

// What a compiler or generator could get wrong, at one place at a time: each is noticed.
TEST_F(CudaPtx, EveryMutationIsNoticed) {
  const Case compiled = {10, 4, Technique::compiled, Mode::assign, Access::aligned};
  const Case async = {10, 4, Technique::compiled, Mode::assign, Access::aligned, false, Loads::async};
  const Case added = {5, 3, Technique::compiled, Mode::accumulate, Access::aligned};
  const Case tables = {5, 6, Technique::tables, Mode::assign, Access::shifted};
  const Case transform = {9, 3, Technique::transform, Mode::assign, Access::aligned};
  struct Mutation {
    Case of;
    const char *what, *by;
    bool always_all;  // not only in `make test-all`
  };
  const Mutation mutations[] = {{compiled, R"((lop3\.b32[^;]*, )(0x96|150);)", "$010x69;", false},
                                {compiled, R"((lop3\.b32[^;]*, )(0x6a|106);)", "$010x6c;", false},
                                {compiled, "0xba98;", "0x3210;", false},     // the bytes, not their signs
                                {tables, R"(, 30288;)", ", 30272;", false},  // 0x7650 of a prmt
                                {tables, R"(bar\.sync\s+0;)", "", true},
                                {tables, R"((st\.shared[^\[]*\[%rd?\d+)\])", "$01+4]", false},
                                {transform, R"(bar\.sync\s+0;)", "", true},
                                {transform, R"((lop3\.b32[^;]*, )(0x96|150);)", "$010x69;", false},
                                {transform, R"((st\.shared\.u32[^\[]*\[%rd?\d+)\+)", "$01+128+", false},
                                {async, R"(cp\.async\.wait_group \d;)", "", true},
                                {async, R"(cp\.async\.commit_group;)", "", true},
                                {added, R"(ld\.global\.v)", "ld.global.nc.v", false}};
  std::map<std::string, Kernel> kernels;
  Random random(slice_seed());
  for (const Mutation &each : mutations) {
    const Kernel &kernel = kernels.try_emplace(each.of.name(), each.of, *ptx::nvrtcs().front()).first->second;
    const std::regex what(each.what);
    std::vector<std::smatch> places(std::sregex_iterator(kernel.ptx.begin(), kernel.ptx.end(), what), {});
    ASSERT_FALSE(places.empty()) << each.what << " in " << each.of.name();
    const std::uint64_t step = each.always_all ? 1 : runs_every_case() ? places.size() / 40 + 1 : places.size();
    for (std::uint64_t i = random.below(step); i < places.size(); i += step) {
      const std::smatch &place = places[i];
      const std::string text = place.prefix().str() + place.format(each.by) + place.suffix().str();
      EXPECT_TRUE(is_noticed(kernel, text))
          << each.of.name() << ", place " << i << " of " << places.size() << ": " << place.str();
    }
    EXPECT_FALSE(is_noticed(kernel, kernel.ptx)) << each.of.name();
  }
  // A byte less of any memory that the launch has.
  for (const auto &[name, kernel] : kernels) {
    const unsigned count = kernel.matrix.rows() + kernel.matrix.columns();
    for (unsigned i = 0; i < count; ++i)
      EXPECT_TRUE(is_noticed(kernel, kernel.ptx, [&](ptx::Launch &launch) { --launch.memory.at(i).bytes; }))
          << name << ", shard " << i;
    if (device::kernel_shared_bytes(kernel.spec, 1) == 0) continue;
    EXPECT_TRUE(is_noticed(kernel, kernel.ptx, [](ptx::Launch &launch) { --launch.shared_bytes; })) << name;
  }
}

// Instructions that NVRTC uses. %rd1: memory of 256 bytes. %r1: the thread. %r2: shared memory of 256 bytes.
std::string text_of(const std::string &body) {
  return ".version 7.7\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 space[];\n"
         ".const .align 4 .b8 table[3] = {7, 8, 255};\n.visible .entry test(.param .u64 memory)\n{\n"
         ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
         "ld.param.u64 %rd1, [memory];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, space;\n" +
         body + "\nret;\n}\n";
}

std::vector<std::uint32_t> run_text(const std::string &body, unsigned threads, bool is_defined = true) {
  std::vector<std::uint32_t> memory(64);
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  ptx::Launch launch;
  launch.grid = {2, 1, 1};
  launch.block = {threads, 1, 1};
  launch.shared_bytes = 256;
  launch.parameters = &address;
  launch.parameter_bytes = sizeof address;
  launch.memory = {{address, 256, is_defined}};
  ptx::Module(text_of("mov.u32 %r8, %ctaid.x;\nsetp.ne.s32 %p8, %r8, 0;\n@%p8 ret;\n" + body)).run(launch);
  return memory;
}

// Expected values by hand, from the manual.
TEST(Ptx, CalculatesAsTheManualSays) {
  const std::pair<const char *, std::uint32_t> cases[] = {
      {"prmt.b32 %r3, 0x44332211, 0x88776655, 0x7410;", 0x88552211},
      {"prmt.b32 %r3, 0x7f80ff01, 0, 0xba98;", 0x00ffff00},
      {"lop3.b32 %r3, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96;", 0x96969696},
      {"lop3.b32 %r3, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xea;", 0xeaeaeaea},
      {"bfi.b32 %r3, 0xff, 0x12345678, 8, 4;", 0x12345f78},
      {"bfi.b32 %r3, 0xff, 0x12345678, 28, 32;", 0xf2345678},
      {"shl.b32 %r3, 1, 32;", 0},
      {"shr.s32 %r3, -8, 99;", 0xffffffff},
      {"shr.u32 %r3, -8, 1;", 0x7ffffffc},
      {"mad.lo.s32 %r3, -3, 5, 7;", 0xfffffff8},
      {"mul.wide.s32 %rd3, -2, 3;\nshr.u64 %rd3, %rd3, 32;\ncvt.u32.u64 %r3, %rd3;", 0xffffffff},
      {"mul.wide.u32 %rd3, -2, 3;\nshr.u64 %rd3, %rd3, 32;\ncvt.u32.u64 %r3, %rd3;", 2},
      {"mul.wide.u16 %r3, 0xffff, 0xffff;", 0xfffe0001},
      {"mov.u16 %rs1, 0x8000;\ncvt.s32.s16 %r3, %rs1;", 0xffff8000},
      {"mov.b16 %rs1, -1;\nmov.b16 %rs2, 3;\nmov.b32 %r3, {%rs2, %rs1};", 0xffff0003},
      {"mov.u32 %r4, 0x12345678;\nmov.b32 {%rs1, %rs2}, %r4;\ncvt.u32.u16 %r3, %rs2;", 0x1234},
      {"setp.lt.s16 %p1, -1, 0;\nselp.b32 %r3, 4, 5, %p1;", 4},
      {"setp.lt.u32 %p1, -1, 0;\nselp.b32 %r3, 4, 5, %p1;", 5},
      {"setp.ge.u64 %p1, -1, 0;\nnot.pred %p1, %p1;\nselp.b32 %r3, 4, 5, %p1;", 5},
      {"max.s32 %r3, -4, 3;", 3},
      {"min.u32 %r3, -4, 3;", 3},
      {"div.u32 %r3, 100, 7;", 14},
      {"neg.s32 %r3, 1;\nsub.s32 %r3, %r3, 1;\nnot.b32 %r3, %r3;", 1},
      {"ld.const.s8 %r3, [table+2];", 0xffffffff},
      {"st.shared.u16 [%r2+2], 0x1234;\nst.shared.u16 [%r2], 0x5678;\nld.shared.u32 %r3, [%r2];", 0x12345678},
      {"atom.global.add.u32 %r3, [%rd1+8], 5;\natom.global.min.u32 %r3, [%rd1+8], 2;", 5},
      {"mov.u32 %r3, 0;\n$again:\nadd.s32 %r3, %r3, 3;\nsetp.lt.u32 %p1, %r3, 10;\n@%p1 bra $again;", 12},
      {"{\n.reg .b32 p;\nmov.b32 p, 9;\nmov.b32 %r3, p;\n}", 9},
      {"mov.u32 %r4, 1;\nmov.u32 %r5, 2;\nst.global.v2.u32 [%rd1+8], {%r4, %r5};\nld.global.u32 %r3, [%rd1+12];", 2}};
  for (const auto &[body, want] : cases) {
    SCOPED_TRACE(body);
    ASSERT_EQ(run_text(std::string(body) + "\nst.global.u32 [%rd1], %r3;", 1)[0], want);
  }
}

// What a launch must not do, and texts that are not known. "": it is allowed.
TEST(Ptx, RefusesWhatAKernelMustNotDo) {
  const std::string mine = "shl.b32 %r3, %r1, 2;\nadd.s32 %r3, %r3, %r2;\nst.shared.u32 [%r3], %r1;\n",
                    sync = "bar.sync 0;\n";
  const std::string first = "setp.eq.s32 %p1, %r1, 0;\n",
                    copy = "cp.async.ca.shared.global [%r2], [%rd1], 4;\ncp.async.commit_group;\n";
  const std::string load = "ld.shared.u32 %r4, [%r2];\n", wait = "cp.async.wait_group 0;\n";
  const std::pair<std::string, const char *> cases[] = {
      {first + "@%p1 st.global.u8 [%rd1+255], 1;", ""},
      {"st.global.u8 [%rd1+256], 1;", "outside of global memory"},
      {"st.global.u8 [%rd1+-1], 1;", "outside of global memory"},
      {"ld.global.v2.u32 {%r3, %r4}, [%rd1+252];", "not aligned"},
      {"st.global.u16 [%rd1+1], 1;", "not aligned"},
      {"st.global.u32 [%rd1], %r1;", "a race in global memory with a write of block 0,0,0 thread"},
      {first + "@%p1 st.global.u32 [%rd1], 1;\n@!%p1 ld.global.u32 %r4, [%rd1];", "a race in global memory"},
      {first + "@%p1 st.global.u32 [%rd1], 1;\n" + sync + "ld.global.u32 %r4, [%rd1];", "a race in global memory"},
      {"atom.global.add.u32 %r4, [%rd1], 1;\nld.global.u32 %r4, [%rd1];", "an atomic operation"},
      {"atom.global.add.u32 %r4, [%rd1], 1;\natom.global.min.u32 %r4, [%rd1+4], 1;", ""},
      {first + "@%p1 ld.global.nc.u32 %r4, [%rd1];\n@%p1 st.global.u32 [%rd1], 1;",
       "a read-only load of bytes that are written"},
      {first + "@%p1 st.global.u32 [%rd1], 1;\n@%p1 ld.global.nc.u32 %r4, [%rd1];",
       "a read-only load of bytes that are written"},
      {"ld.shared.u8 %r4, [%r2+256];", "outside of shared memory"},
      {load, "shared memory that is read before it is written"},
      {mine + sync + load, ""},
      {mine + load, "a race in shared memory"},
      {mine + sync + load + mine, "a race in shared memory with a read of several threads"},
      {first + "@%p1 st.shared.u8 [%r2], 1;\n@%p1 ld.shared.u8 %r4, [%r2];", ""},
      {first + "@!%p1 bra $end;\n" + copy + load + wait + "$end:", "a copy that was not waited for"},
      {first + "@!%p1 bra $end;\n" + copy + wait + load + "$end:", ""},
      {first + "@!%p1 bra $end;\n" + copy + "$end:", "a thread ends before its copies"},
      {first + "@!%p1 bra $end;\n" + copy + copy + "$end:", "a copy that was not waited for"},
      {first + "@!%p1 bra $end;\n" + copy + wait + "$end:\n" + load, "a race in shared memory"},
      {first + "@!%p1 bra $end;\n" + copy + wait + "$end:\n" + sync + load, ""},
      {first + "@%p1 ret;\n" + sync, "has ended and skips a barrier"},
      {first + "@%p1 bra $other;\n" + sync + "ret;\n$other:\n" + sync, "wait at another barrier"},
      {first + "@%p1 trap;", "trap"},
      {"$again:\nbra $again;", "does not end"},
      {"mov.u32 %r3, 0;\ndiv.u32 %r4, %r1, %r3;", "a division by 0"},
      {"ld.param.u64 %rd3, [memory+8];", "outside of the parameters"},
      {"ld.const.u8 %r3, [table+3];", "outside of constant memory"},
      {"add.sat.s32 %r3, %r1, 1;", "not known: .sat"},
      {"fma.rn.f32 %r3, %r1, %r1, %r1;", "not known: fma"},
      {"add.s32 %rd3, %rd1, 1;", "a register of 64 bits"},
      {"add.s32 %r9, %r1, 1;", "not declared: %r9"},
      {"bra $nowhere;", "no label $nowhere"}};
  for (const auto &[body, why] : cases) {
    SCOPED_TRACE(body);
    std::string found;
    try {
      run_text(body, 64);
    } catch (const ptx::Error &error) {
      found = error.what();
    }
    EXPECT_NE(found.find(why), std::string::npos) << found;
    EXPECT_EQ(found.empty(), *why == '\0') << found;
  }
  EXPECT_THROW(run_text("ld.global.u32 %r4, [%rd1];", 1, false), ptx::Error) << "memory that is not defined";
  EXPECT_NO_THROW(run_text("st.global.u32 [%rd1], 1;\nld.global.u32 %r4, [%rd1];", 1, false));
}

}  // namespace
}  // namespace tandem::test
