// SPDX-License-Identifier: Apache-2.0
// Operators: what they refuse and what they cost. The dense matrix of each form is held to the code in
// core_codec_test.cpp, and to what runs it in the conformance tests.
#include "core/operator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/shard_set.hpp"
#include "tests/base/errors.hpp"
#include "tests/conformance/forms.hpp"
#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using core::CauchyTransform;
using core::Matrix;
using core::Operator;
using core::SyndromeDecode;

TEST(Operator, DenseOfADecodeMultipliesNoMatrices) {
  Random random(15);
  const unsigned data = 96, chosen = 32, outputs = 34;
  const Operator what(random_decode(random, data, chosen, 30, 4));
  const std::uint64_t before = core::multiply_add_count();
  what.dense();
  EXPECT_LE(core::multiply_add_count() - before, chosen * (data + outputs) + outputs * (data + chosen));
}

TEST(Operator, CopiesShareTheDenseMatrix) {
  const Operator what(transform_of(points_from(0, 9), points_from(9, 5))), copy = what;
  std::vector<const Matrix *> seen(8);
  std::vector<std::thread> threads;
  for (const Matrix *&each : seen) threads.emplace_back([&] { each = &what.dense(); });
  for (std::thread &thread : threads) thread.join();
  for (const Matrix *each : seen) EXPECT_EQ(each, &copy.dense());
}

TEST(Operator, PointsAndScalesAreChecked) {
  const auto refusal = [](const core::Form &form) {
    return test::refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { const Operator what(form); });
  };
  const CauchyTransform good = {{1, 2}, {3, 7}, {5, 6}, {8, 9}};
  EXPECT_NO_THROW(Operator(core::Form(good)));
  const auto with = [&](auto change) {
    CauchyTransform form = good;
    change(form);
    return refusal(form);
  };
  EXPECT_EQ(with([](auto &form) {
              form.input_points = {2, 1};
            }),
            "a Cauchy transform: the 2 input points do not ascend");
  EXPECT_EQ(with([](auto &form) {
              form.output_points = {7, 7};
            }),
            "a Cauchy transform: the 2 output points do not ascend");
  EXPECT_EQ(with([](auto &form) { form.output_points[1] = 256; }),
            "a Cauchy transform: output point 256 is not in GF(2^8)");
  EXPECT_EQ(with([](auto &form) { form.output_points[0] = 2; }),
            "a Cauchy transform: point 2 is of an input and of an output");
  EXPECT_EQ(with([](auto &form) { form.input_scales.pop_back(); }), "a Cauchy transform: 1 input scales for 2 points");
  EXPECT_EQ(with([](auto &form) { form.output_scales[1] = 0; }),
            "a Cauchy transform: output scale 0 is not from 1 to 255");
  const CauchyTransform solve = {{3}, {0, 7}, {}, {}};
  EXPECT_NO_THROW(Operator(core::Form(SyndromeDecode{good, solve})));
  EXPECT_EQ(refusal(SyndromeDecode{good, {{4}, {0, 7}, {}, {}}}),
            "a Cauchy transform: the chosen parity point 4 has no syndrome");
  EXPECT_EQ(refusal(SyndromeDecode{good, {{3}, {0}, {}, {}}}),
            "a Cauchy transform: the syndrome of point 7 is not used");
  EXPECT_EQ(refusal(SyndromeDecode{good, {{3}, {1, 7}, {}, {}}}),
            "a Cauchy transform: point 1 is of present data and of an output");
}

TEST(Operator, GranularityIsOfAnOperator) {
  EXPECT_EQ(Operator(Matrix(1, 1)).granularity_bytes(), 1u);
  EXPECT_EQ(Operator(Matrix(1, 1), 96).granularity_bytes(), 96u);
  for (const std::uint64_t wrong : {std::uint64_t{0}, Operator::kMostGranularityBytes + 1, UINT64_MAX}) {
    const std::string message =
        refusal(TANDEM_ERROR_INVALID_ARGUMENT, [&] { const Operator what(Matrix(1, 1), wrong); });
    EXPECT_NE(message.find(std::to_string(wrong)), std::string::npos) << message;
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
