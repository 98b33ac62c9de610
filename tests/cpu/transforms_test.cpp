// SPDX-License-Identifier: Apache-2.0
// The transforms of wide codes need scratch memory. A thread that gets none must compute the same bytes.
#include "cpu/transforms.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/costs.hpp"
#include "cpu/gf16.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/support/expected.hpp"
#include "tests/support/failing_memory.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

// One call on `bytes` bytes, and what it should give.
struct Call {
  Call(Random &random, const core::Matrix &matrix, std::size_t bytes) {
    for (unsigned c = 0; c < matrix.columns(); ++c) inputs.push_back(random.bytes(bytes));
    outputs.assign(matrix.rows(), Bytes(bytes));
    for (const Bytes &input : inputs) in.push_back(input.data());
    for (Bytes &output : outputs) out.push_back(output.data());
    want = expected(matrix.data(), matrix.rows(), matrix.columns(), in.data(), bytes);
    call.inputs = in.data();
    call.outputs = out.data();
    call.length_bytes = bytes;
    call.rows = matrix.rows();
    call.columns = matrix.columns();
  }
  Shards inputs, outputs, want;
  std::vector<const std::uint8_t *> in;
  std::vector<std::uint8_t *> out;
  cpu::KernelCall call = {};
};

TEST(Transforms, WithoutScratchMemoryTheBytesAreTheSame) {
  Random random(21);
  std::vector<std::pair<std::string, core::Form>> forms;
  forms.emplace_back("square", transform_of(points_from(0, 128), points_from(128, 128)));
  forms.emplace_back("every group has both", random_transform(random, 128, 128));
  forms.emplace_back("most syndromes", random_decode(random, 60, 128, 30, 30));
  forms.emplace_back("narrow", transform_of(points_from(0, 12), points_from(12, 4)));
  const cpu::CpuFeatures features = cpu::cpu_features();
  const cpu::KernelTable table = cpu::kernel_table();
  for (std::uint32_t i = 0; i < table.count; ++i) {
    const cpu::Kernel &kernel = *table.kernels[i];
    if (!kernel.supported(features)) continue;
    for (const auto &[name, form] : forms) {
      const core::Operator what(form);
      for (const bool solve_by_transform : {false, true}) {
        const auto made = [&] {
          const auto *decode = std::get_if<core::SyndromeDecode>(&what.form());
          if (decode != nullptr) return cpu::Transforms(kernel, *decode, solve_by_transform);
          return cpu::Transforms(kernel, std::get<core::CauchyTransform>(what.form()));
        }();
        for (const bool out_of_cache : {false, true}) {
          Call call(random, what.dense(), 1000);
          call.call.out_of_cache = out_of_cache;
          std::thread thread([&] {  // its scratch memory is its own
            allowed_allocations = 0;
            made.apply(call.call);
            allowed_allocations = -1;
          });
          thread.join();
          ASSERT_EQ(call.outputs, call.want) << kernel.name << ", " << name << ", out of cache " << out_of_cache;
        }
      }
    }
  }
  EXPECT_GT(failed_allocations.load(), 0) << "scratch memory was not refused";
}

// Scratch of a call on few bytes is as short as they are: a whole lane more would be written beyond its end.
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

TEST(Gf16Operator, LanesAreAsShortAsTheRange) {
  constexpr unsigned kData = 24, kParity = 16;
  core::Leopard16 form;
  form.group_log2 = 4;
  for (unsigned c = 0; c < kData; ++c) form.data_points.push_back(static_cast<core::Element>(kParity + c));
  for (unsigned r = 0; r < kParity; ++r) form.parity_points.push_back(static_cast<core::Element>(r));
  const core::Operator what(std::move(form));
  const cpu::Gf16Operator made(*cpu::select_kernel(cpu::cpu_features(), nullptr)->gf16, what);
  Random random(16);
  Shards inputs, whole(kParity, Bytes(3000)), parts(kParity, Bytes(3000));
  std::vector<const std::byte *> in;
  for (unsigned c = 0; c < kData; ++c) inputs.push_back(random.bytes(3000));
  for (const Bytes &each : inputs) in.push_back(reinterpret_cast<const std::byte *>(each.data()));
  const core::Prepared prepared(what);
  const auto apply = [&](Shards &outputs, std::uint64_t offset_bytes, std::uint64_t length_bytes) {
    std::vector<std::byte *> out;
    for (Bytes &each : outputs) out.push_back(reinterpret_cast<std::byte *>(each.data()));
    const core::Task task{&prepared, in.data(), out.data(), offset_bytes, length_bytes, core::Mode::assign};
    const Guarded scratch(made.scratch_bytes(task.mode, length_bytes));
    made.apply(task, offset_bytes, length_bytes, reinterpret_cast<std::byte *>(scratch.data()), nullptr);
  };
  EXPECT_EQ(16 * made.scratch_bytes(core::Mode::assign, 2), made.scratch_bytes(core::Mode::assign, 1 << 20));
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
