// SPDX-License-Identifier: Apache-2.0
// Operators that need scratch memory, and the times that choose between them.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cpu/costs.hpp"
#include "cpu/factory.hpp"
#include "cpu/gf16.hpp"
#include "cpu/gf8.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

// An operator that needs scratch memory, and a way to run it.
struct Scratched {
  const char *name;
  core::Operator what;
  core::Mode mode;
};

// Leopard's encode of 24 data shards.
core::Operator leopard() {
  constexpr unsigned kData = 24, kParity = 16;
  core::Leopard16 form;
  form.group_log2 = 4;
  for (unsigned c = 0; c < kData; ++c) form.data_points.push_back(static_cast<core::Element>(kParity + c));
  for (unsigned r = 0; r < kParity; ++r) form.parity_points.push_back(static_cast<core::Element>(r));
  return core::Operator(std::move(form));
}

std::vector<Scratched> scratched() {
  Random random(21);
  using core::Mode;
  std::vector<Scratched> all;
  all.push_back({"square", core::Operator(transform_of(points_from(0, 128), points_from(128, 128))), Mode::assign});
  all.push_back({"every group has both", core::Operator(random_transform(random, 128, 128)), Mode::accumulate});
  all.push_back({"most syndromes", core::Operator(random_decode(random, 60, 128, 30, 30)), Mode::assign});
  all.push_back({"compare", core::Operator(transform_of(points_from(0, 64), points_from(64, 32))), Mode::compare});
  all.push_back({"leopard", leopard(), Mode::assign});
  return all;
}

// Runs on a thread of its own, with scratch memory of its own. Allocations fail after so many; -1: none fails. False:
// the run was refused for lack of memory.
bool run_with(const Scratched &of, const std::string &executor, const Shards &inputs, Shards &outputs,
              std::vector<core::Mismatch> &found, long allowed) {
  cpu::Options options;
  options.executor = executor;
  options.thread_count = executor == "serial" ? 1 : 4;
  options.technique = of.what.field() == core::Field::gf8 ? "transform" : "";
  cpu::Decisions choice = {};
  const auto backend = cpu::make_backend(options, base::Log(), &choice);
  const auto prepared = backend->prepare(of.what);
  std::vector<const std::byte *> in;
  std::vector<std::byte *> out;
  for (const Bytes &each : inputs) in.push_back(reinterpret_cast<const std::byte *>(each.data()));
  for (Bytes &each : outputs) out.push_back(reinterpret_cast<std::byte *>(each.data()));
  found.assign(outputs.size(), core::Mismatch());
  const core::Task task{prepared.get(), in.data(), out.data(), 0, inputs[0].size(), of.mode, found.data()};
  bool has_run = false;
  std::thread thread([&] {
    core::Control control;
    allowed_allocations = allowed;
    try {
      backend->run({&task, 1}, control);
      has_run = true;
    } catch (const std::bad_alloc &) {
    } catch (const base::Error &error) {
      allowed_allocations = -1;
      EXPECT_EQ(error.status(), TANDEM_ERROR_OUT_OF_MEMORY) << error.what();
    }
    allowed_allocations = -1;
  });
  thread.join();
  return has_run;
}

// OpenMP gives each thread its chunks, so that a thread without memory has some. With the pool the calling thread may
// be done before.
std::string executor_with_chunks_for_each_thread() {
#if !defined(TANDEM_TEST_WITHOUT_OPENMP)
  cpu::Options options;
  options.executor = "openmp";
  cpu::Decisions choice = {};
  try {
    cpu::make_backend(options, base::Log(), &choice);
    return "openmp";
  } catch (const base::Error &error) {
    std::printf("NOT RUN: %s\n", error.what());
  }
#endif
  return "pthread";
}

// A thread without memory for scratch leaves its chunks to the calling thread, which reserves its own before anything
// is written.
TEST(Scratch, WithoutMemoryNothingIsWrittenOrAllOfIt) {
  const std::string executor = executor_with_chunks_for_each_thread();
  Random random(22);
  for (const Scratched &each : scratched()) {
    SCOPED_TRACE(each.name);
    Shards inputs, before;
    for (unsigned c = 0; c < each.what.input_count(); ++c) inputs.push_back(random.bytes(40'000));
    for (unsigned r = 0; r < each.what.output_count(); ++r) before.push_back(random.bytes(40'000));
    Shards want = before;
    std::vector<core::Mismatch> wanted, found;
    ASSERT_TRUE(run_with(each, "serial", inputs, want, wanted, -1));
    unsigned refused_count = 0, saved_count = 0;
    for (long allowed = 0;; ++allowed) {
      Shards outputs = before;
      failed_allocations = 0;
      const bool has_run = run_with(each, executor, inputs, outputs, found, allowed);
      ASSERT_EQ(outputs, has_run ? want : before) << allowed << " allocations";
      for (unsigned r = 0; has_run && r < found.size(); ++r) ASSERT_EQ(found[r].byte_count, wanted[r].byte_count) << r;
      if (failed_allocations == 0) break;
      ++(has_run ? saved_count : refused_count);
    }
    EXPECT_GT(refused_count, 0u);
    EXPECT_TRUE(saved_count > 0 || executor == "pthread") << "no thread lacked memory";
  }
}

// Scratch of the size that a call says is enough, with every kernel, in the cache and out of it.
TEST(Scratch, OfACallIsEnough) {
  Random random(23);
  const cpu::CpuFeatures features = cpu::cpu_features();
  const cpu::KernelTable table = cpu::kernel_table();
  for (const Scratched &each : scratched()) {
    if (each.what.field() != core::Field::gf8 || each.mode == core::Mode::compare) continue;
    const core::Matrix &matrix = each.what.dense();
    Shards inputs;
    std::vector<const std::uint8_t *> in;
    for (unsigned c = 0; c < matrix.columns(); ++c) inputs.push_back(random.bytes(5'000));
    for (const Bytes &input : inputs) in.push_back(input.data());
    const Shards want = expected(matrix.data(), matrix.rows(), matrix.columns(), in.data(), 5'000);
    for (std::uint32_t i = 0; i < table.count; ++i) {
      const cpu::Kernel &kernel = *table.kernels[i];
      if (!kernel.supported(features)) continue;
      const cpu::Gf8Operator made(kernel, 0, each.what, cpu::RunBy::transform, {}, nullptr);
      for (const bool out_of_cache : {false, true}) {
        Shards outputs(matrix.rows(), Bytes(5'000));
        std::vector<std::byte *> out;
        for (Bytes &output : outputs) out.push_back(reinterpret_cast<std::byte *>(output.data()));
        const core::Task task{&made,    reinterpret_cast<const std::byte *const *>(in.data()), out.data(), 0, 5'000,
                              each.mode};
        const cpu::OperatorCall call{&task, 0, 5'000, out_of_cache};
        const Guarded scratch(made.scratch_bytes(call));
        made.apply(call, reinterpret_cast<std::byte *>(scratch.data()), nullptr);
        ASSERT_EQ(outputs, want) << kernel.name << ", " << each.name << ", out of cache " << out_of_cache;
      }
    }
  }
}

// Without times of its own a kernel takes those of "scalar", which choose the wrong technique.
TEST(Costs, EveryKernelOfTheTableHasItsTimes) {
  const cpu::KernelTable table = cpu::kernel_table();
  for (std::uint32_t i = 0; i < table.count; ++i)
    EXPECT_TRUE(cpu::has_times(*table.kernels[i])) << table.kernels[i]->name << ": no row in cpu/costs.cpp";
  cpu::Kernel unknown = *table.kernels[0];
  unknown.name = "avx1024";
  EXPECT_FALSE(cpu::has_times(unknown));
  const cpu::Steps steps = {.products = 3, .moves = 4, .alone = 5, .fused = 6, .lanes = 7, .shards = 8};
  EXPECT_EQ(cpu::cost_of(steps, unknown, true), cpu::cost_of(steps, *table.kernels[table.count - 1], true));
}

// The products that the kernels' blocks need (counted by hand). Without them decodes of neighbours are taken for slower
// than they are, and another technique is used.
TEST(Costs, ADecodeOfWholePairsNeedsFewerProducts) {
  const cpu::KernelTraits traits = {.rows_per_pass = 8, .fused_groups = 2, .has_quads = true, .has_pairs = true};
  const auto range = [](core::Element first, std::size_t count) {
    std::vector<core::Element> points(count);
    std::iota(points.begin(), points.end(), first);
    return points;
  };
  struct Case {
    const char *name;
    std::vector<core::Element> present, parity, lost;
    std::uint32_t products;
  };
  for (const Case &each : {Case{"32+8, quads", range(8, 24), range(32, 8), range(0, 8), 2 * 8 * 9},
                           Case{"20+10, pairs", range(10, 10), range(20, 10), range(0, 10), 5 * 10 * 3},
                           Case{"32+8, odd losses", range(9, 23), range(32, 8), range(1, 8), 8 * 31},
                           Case{"32+9, odd parity", range(8, 24), range(33, 8), range(0, 8), 8 * 32}}) {
    core::SyndromeDecode form;
    form.syndromes.input_points = each.present;
    form.syndromes.output_points = form.solve.input_points = each.parity;
    form.solve.output_points = each.lost;
    const cpu::Steps steps = cpu::matrix_steps(traits, form);
    EXPECT_EQ(steps.products, each.products) << each.name;
    form.solve.output_scales = range(1, each.lost.size());
    EXPECT_EQ(cpu::matrix_steps(traits, form).saved, 0u) << each.name << ", unequal scales";
    EXPECT_EQ(steps.products + steps.saved, each.lost.size() * (each.present.size() + each.parity.size())) << each.name;
  }
}

// Scratch of a call on few bytes is as short as they are: a whole lane more would be written beyond its end.
TEST(Gf16Operator, LanesAreAsShortAsTheRange) {
  const cpu::Gf16Operator made(*cpu::select_kernel(cpu::cpu_features(), nullptr)->gf16, leopard(), {}, nullptr);
  Random random(16);
  Shards inputs, whole(made.rows(), Bytes(3000)), parts(made.rows(), Bytes(3000));
  std::vector<const std::byte *> in;
  for (unsigned c = 0; c < made.columns(); ++c) inputs.push_back(random.bytes(3000));
  for (const Bytes &each : inputs) in.push_back(reinterpret_cast<const std::byte *>(each.data()));
  const auto apply = [&](Shards &outputs, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
    std::vector<std::byte *> out;
    for (Bytes &each : outputs) out.push_back(reinterpret_cast<std::byte *>(each.data()));
    const core::Task task{&made, in.data(), out.data(), offset_bytes, length_bytes, core::Mode::assign};
    const cpu::OperatorCall call{&task, offset_bytes, length_bytes};
    const Guarded scratch(made.scratch_bytes(call));
    made.apply(call, reinterpret_cast<std::byte *>(scratch.data()), nullptr);
  };
  EXPECT_EQ(16 * made.scratch_bytes({nullptr, 0, 2}), made.scratch_bytes({nullptr, 0, 1 << 20}));
  apply(whole, 0, 3000);
  std::uint64_t at = 0;
  for (const std::uint64_t bytes : {64, 128, 1024, 1088, 640, 56}) {
    apply(parts, at, bytes);
    at += bytes;
  }
  EXPECT_EQ(at, 3000u);
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace tandem::test
