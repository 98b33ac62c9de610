// SPDX-License-Identifier: Apache-2.0
// A schedule of sums must make each output from the packets in its row, and share sums that save loads.
#include "cpu/sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/random.hpp"
#include "tests/support/slice.hpp"

namespace tandem::test {
namespace {

using core::Matrix;
using cpu::Schedule;
using cpu::Sum;

// Which inputs each output is the sum of, found by running the schedule over sets of inputs.
Matrix matrix_of(const Schedule &schedule, unsigned rows, unsigned columns) {
  std::vector<std::vector<bool>> slots(schedule.slot_count, std::vector<bool>(columns));
  std::vector<bool> is_made(schedule.slot_count);
  for (unsigned c = 0; c < columns; ++c) slots[c][c] = is_made[c] = true;
  for (const Sum &sum : schedule.sums) {
    EXPECT_LT(sum.to, schedule.slot_count);
    EXPECT_FALSE(is_made[sum.to]) << "slot " << sum.to << " is made twice";
    EXPECT_EQ(std::set<std::uint32_t>(sum.from.begin(), sum.from.end()).size(), sum.from.size()) << "a slot twice";
    std::vector<bool> total(columns);
    for (const std::uint32_t from : sum.from) {
      EXPECT_TRUE(is_made[from]) << "slot " << from << " is used before it is made";
      for (unsigned c = 0; c < columns; ++c) total[c] = total[c] != slots[from][c];
    }
    slots[sum.to] = total;
    is_made[sum.to] = true;
  }
  Matrix matrix(rows, columns);
  for (unsigned r = 0; r < rows; ++r) {
    EXPECT_TRUE(is_made[columns + r]) << "output " << r << " is not made";
    for (unsigned c = 0; c < columns; ++c) matrix.at(r, c) = slots[columns + r][c];
  }
  return matrix;
}

TEST(Sums, SchedulesMakeTheMatrix) {
  Random random(611);
  for (unsigned trial = 0; trial < thinned(120); ++trial) {
    const auto rows = static_cast<unsigned>(random.between(trial == 0 ? 0 : 1, 128));
    const auto columns = static_cast<unsigned>(random.between(trial == 1 ? 0 : 1, 128));
    const auto percent = static_cast<unsigned>(random.below(101));
    Matrix bits(trial == 0 ? 0 : rows, trial == 1 ? 0 : columns);
    for (unsigned r = 0; r < bits.rows(); ++r)
      for (unsigned c = 0; c < bits.columns(); ++c) bits.at(r, c) = random.chance(percent);
    const Schedule plain = cpu::plain_schedule(bits), shared = cpu::shared_schedule(bits);
    EXPECT_EQ(matrix_of(plain, bits.rows(), bits.columns()), bits);
    EXPECT_EQ(matrix_of(shared, bits.rows(), bits.columns()), bits);
    EXPECT_LE(shared.addition_count(), plain.addition_count());
    if (HasFailure()) return;
  }
}

// Half of all bits: two thirds of the additions at most.
TEST(Sums, DenseMatricesShareMost) {
  Random random(612);
  Matrix bits(64, 80);
  for (unsigned r = 0; r < bits.rows(); ++r)
    for (unsigned c = 0; c < bits.columns(); ++c) bits.at(r, c) = random.chance(50);
  const std::uint64_t plain = cpu::plain_schedule(bits).addition_count();
  EXPECT_LT(cpu::shared_schedule(bits).addition_count() * 3, plain * 2);
}

// Old and new data of an update are added first: rows of twice the same columns.
TEST(Sums, TheSameColumnTwice) {
  Matrix bits(32, 16);
  Random random(613);
  for (unsigned r = 0; r < bits.rows(); ++r)
    for (unsigned c = 0; c < 8; ++c) bits.at(r, c) = bits.at(r, c + 8) = random.chance(50);
  const Schedule shared = cpu::shared_schedule(bits);
  EXPECT_EQ(matrix_of(shared, 32, 16), bits);
  EXPECT_LE(shared.addition_count(), cpu::plain_schedule(bits).addition_count() / 2 + 8);
}

}  // namespace
}  // namespace tandem::test
