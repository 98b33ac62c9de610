// An operator means what its steps say, and its dense matrix says the same.
#include "core/operator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.hpp"
#include "core/shard_set.hpp"
#include "tests/conformance/steps.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::Matrix;
using core::Operator;

// Column c is what the steps make of the c-th unit vector.
Matrix matrix_of(const Operator &what) {
  Matrix matrix(what.output_count(), what.input_count());
  for (unsigned c = 0; c < what.input_count(); ++c) {
    Shards inputs(what.input_count(), Bytes(1));
    inputs[c][0] = 1;
    const Shards outputs = outputs_of(what.expand(), std::move(inputs), what.output_count(), 1);
    for (unsigned r = 0; r < what.output_count(); ++r) matrix.at(r, c) = outputs[r][0];
  }
  return matrix;
}

TEST(Operator, DenseIsWhatTheStepsSay) {
  Random random(11);
  for (const auto &[rows, columns] :
       {std::pair{0u, 0u}, {0u, 3u}, {3u, 0u}, {1u, 1u}, {4u, 10u}, {9u, 2u}, {300u, 260u}}) {
    Matrix matrix(rows, columns);
    for (unsigned r = 0; r < rows; ++r) random.fill(matrix.row(r).data(), columns);
    const Operator what(matrix, 96);
    EXPECT_EQ(what.output_count(), rows);
    EXPECT_EQ(what.input_count(), columns);
    EXPECT_EQ(what.dense(), matrix);
    EXPECT_EQ(matrix_of(what), what.dense()) << rows << " x " << columns;
  }
}

TEST(Operator, GranularityIsOfAnOperator) {
  EXPECT_EQ(Operator(Matrix(1, 1)).granularity_bytes(), 1u);
  EXPECT_EQ(Operator(Matrix(1, 1), 96).granularity_bytes(), 96u);
  for (const std::uint64_t wrong : {std::uint64_t{0}, Operator::kMostGranularityBytes + 1, UINT64_MAX}) {
    try {
      const Operator what(Matrix(1, 1), wrong);
      FAIL() << wrong << " was taken";
    } catch (const base::Error &error) {
      EXPECT_EQ(error.status(), TANDEM_ERROR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find(std::to_string(wrong)), std::string::npos) << error.what();
    }
  }
}

TEST(ShardSet, HoldsWhatWasPutIn) {
  Random random(12);
  for (const unsigned most : {10u, 64u, 65u, 256u, 257u, 1000u, 65'536u}) {
    std::vector<std::size_t> shards;
    for (unsigned i = 0; i < 60; ++i) shards.push_back(random.below(most));
    core::ShardSet set, backwards, with_another;
    EXPECT_TRUE(set.none());
    EXPECT_EQ(set.end(), 0u);
    for (const std::size_t shard : shards) set.set(shard);
    for (std::size_t i = shards.size(); i-- != 0;) backwards.set(shards[i]);
    with_another = set;
    with_another.set(most + 5);
    std::sort(shards.begin(), shards.end());
    for (unsigned i = 0; i < most; ++i)
      ASSERT_EQ(set[i], std::binary_search(shards.begin(), shards.end(), i)) << i << " of " << most;
    EXPECT_FALSE(set.none());
    EXPECT_EQ(set.end(), shards.back() + 1);
    EXPECT_FALSE(set[most]);
    EXPECT_FALSE(set[SIZE_MAX]);
    EXPECT_EQ(set, backwards);
    EXPECT_EQ(set.hash(), backwards.hash());
    EXPECT_NE(set, with_another);
    EXPECT_NE(set, core::ShardSet());
  }
}

TEST(ShardSet, HashesTellNeighboursApart) {
  std::set<std::size_t> hashes;
  for (unsigned i = 0; i < 1000; ++i) {
    core::ShardSet one;
    one.set(i);
    hashes.insert(one.hash());
  }
  EXPECT_EQ(hashes.size(), 1000u);
}

}  // namespace
}  // namespace tandem::test
