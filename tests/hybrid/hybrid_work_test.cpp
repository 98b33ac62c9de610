// SPDX-License-Identifier: Apache-2.0
// The tasks of a run on one axis: where they are cut, and which parts of them a range has.
#include "hybrid/policy/work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/operator.hpp"
#include "tests/base/errors.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::Work;

core::Prepared prepared(unsigned rows, unsigned columns, std::uint64_t granularity_bytes) {
  return core::Prepared(core::Operator(core::Matrix(rows, columns), granularity_bytes));
}

core::Task task(const core::Prepared &of, std::uint64_t length_bytes) {
  static const std::byte *inputs[16];
  static std::byte *outputs[16];
  return {&of, inputs, outputs, 7 * 96, length_bytes, core::Mode::assign};
}

// Two workers never write to one line of a cache or device (256 bytes), or to one unit of an operator.
TEST(HybridWork, CutsAreAtWholeLinesAndUnits) {
  const core::Prepared bytes = prepared(4, 10, 1), units = prepared(3, 5, 96);
  const std::vector<core::Task> tasks = {task(bytes, 10'001), task(units, 96 * 107), task(bytes, 255)};
  const std::vector<std::uint64_t> lines = {256, 768, 256};  // 768 is the least common multiple of 256 and 96
  const Work work(tasks);
  std::vector<std::uint64_t> cuts;
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::uint64_t moved = tasks[i].prepared->rows() + tasks[i].prepared->columns();
    for (std::uint64_t at = 0; at < tasks[i].length_bytes; at += lines[i]) cuts.push_back(start + moved * at);
    start += moved * tasks[i].length_bytes;
  }
  cuts.push_back(start);
  EXPECT_EQ(work.bytes(), start);
  for (std::uint64_t at = 0; at <= start; ++at)
    ASSERT_EQ(work.cut(at), *std::lower_bound(cuts.begin(), cuts.end(), at)) << at;
  EXPECT_EQ(work.cut(UINT64_MAX), start);
}

TEST(HybridWork, RangesHaveEveryByteOnce) {
  const core::Prepared bytes = prepared(4, 10, 1), units = prepared(3, 5, 96);
  const std::vector<core::Task> tasks = {task(bytes, 10'001), task(bytes, 0), task(units, 96 * 107), task(bytes, 255)};
  const Work work(tasks);
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::uint64_t> done(tasks.size());
    for (std::uint64_t at = 0; at < work.bytes();) {
      const std::uint64_t end = work.cut(at + 1 + random.below(60'000));
      for (const Work::Part &part : work.parts({at, end})) {
        ASSERT_EQ(part.task.offset_bytes, 7 * 96 + done[part.of]);
        ASSERT_GT(part.task.length_bytes, 0U);
        done[part.of] += part.task.length_bytes;
      }
      at = end;
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) EXPECT_EQ(done[i], tasks[i].length_bytes);
  }
}

// A device that hangs may look at them after the call.
TEST(HybridWork, HasItsOwnListsOfShards) {
  const core::Prepared bytes = prepared(2, 3, 1);
  std::byte shards[5];
  std::vector<const std::byte *> inputs = {&shards[0], &shards[1], &shards[2]};
  std::vector<std::byte *> outputs = {&shards[3], &shards[4]};
  const std::vector<core::Task> tasks(2, {&bytes, inputs.data(), outputs.data(), 0, 1000, core::Mode::assign});
  const Work work(tasks);
  inputs.assign(3, nullptr);
  outputs.assign(2, nullptr);
  for (const Work::Part &part : work.parts({0, work.bytes()})) {
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(part.task.inputs[i], &shards[i]);
    for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(part.task.outputs[i], &shards[3 + i]);
  }
}

TEST(HybridWork, MoreThanCanBeCountedIsRefused) {
  const core::Prepared wide = prepared(16, 16, 1);
  const std::vector<core::Task> one = {task(wide, UINT64_MAX / 32), task(wide, 0)};
  EXPECT_EQ(Work(one).bytes(), UINT64_MAX / 32 * 32);
  for (const std::vector<core::Task> &each :
       {std::vector{task(wide, UINT64_MAX / 32 + 1)}, std::vector{one[0], task(wide, 1)}}) {
    refusal(TANDEM_ERROR_TOO_LARGE, [&] { const Work work(each); });
  }
}

}  // namespace
}  // namespace tandem::test
