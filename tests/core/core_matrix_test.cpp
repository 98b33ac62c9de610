// SPDX-License-Identifier: Apache-2.0
// Field arithmetic, the recognition of Cauchy matrices and proofs of MDS, against the slow reference. Eliminations are
// held to the code in core_codec_test.cpp and core_groups_test.cpp.
#include "core/matrix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "core/gf.hpp"
#include "core/presets.hpp"
#include "tests/reference.hpp"

namespace tandem::core {
namespace {

Matrix random_matrix(std::mt19937 &random, unsigned rows, unsigned columns) {
  Matrix matrix(rows, columns);
  for (unsigned r = 0; r < rows; ++r) {
    for (std::uint8_t &cell : matrix.row(r)) cell = static_cast<std::uint8_t>(random());
  }
  return matrix;
}

// Every square submatrix has full rank, by the reference.
bool every_minor_is_regular(const Matrix &matrix) {
  for (unsigned row_set = 1; row_set < 1u << matrix.rows(); ++row_set) {
    for (unsigned column_set = 1; column_set < 1u << matrix.columns(); ++column_set) {
      if (__builtin_popcount(row_set) != __builtin_popcount(column_set)) continue;
      reference::Rows block;
      for (unsigned r = 0; r < matrix.rows(); ++r) {
        if ((row_set >> r & 1) == 0) continue;
        block.emplace_back();
        for (unsigned c = 0; c < matrix.columns(); ++c) {
          if (column_set >> c & 1) block.back().push_back(matrix.at(r, c));
        }
      }
      if (reference::rank(block) != block.size()) return false;
    }
  }
  return true;
}

// The parity rows that a CauchyForm describes, by its definition.
Matrix expand(const CauchyForm &form, unsigned k) {
  Matrix matrix(static_cast<unsigned>(form.points.size()) - k, k);
  for (unsigned r = 0; r < matrix.rows(); ++r) {
    for (unsigned c = 0; c < k; ++c) {
      const unsigned row_point = form.points[k + r], column_point = form.points[c];
      const bool infinite = row_point == CauchyForm::kInfinity || column_point == CauchyForm::kInfinity;
      const auto difference = infinite ? std::uint8_t{1} : static_cast<std::uint8_t>(row_point ^ column_point);
      matrix.at(r, c) = reference::multiply(reference::multiply(form.scales[k + r], reference::inverse(form.scales[c])),
                                            reference::inverse(difference));
    }
  }
  return matrix;
}

// A Cauchy matrix of random distinct points and random non-zero scales.
Matrix random_cauchy(std::mt19937 &random, unsigned k, unsigned m) {
  std::vector<std::uint16_t> points(256);
  for (unsigned i = 0; i < 256; ++i) points[i] = static_cast<std::uint16_t>(i);
  std::shuffle(points.begin(), points.end(), random);
  points.resize(k + m);
  std::vector<std::uint8_t> scales(k + m);
  for (std::uint8_t &scale_value : scales) scale_value = static_cast<std::uint8_t>(1 + random() % 255);
  return expand({points, scales}, k);
}

TEST(Field, AllProductsQuotientsAndPowers) {
  for (unsigned a = 0; a < 256; ++a) {
    const auto x = static_cast<std::uint8_t>(a);
    ASSERT_EQ(gf::inverse(x), reference::inverse(x)) << a;
    for (unsigned b = 0; b < 256; ++b) {
      const auto y = static_cast<std::uint8_t>(b);
      const std::uint8_t product = reference::multiply(x, y);
      ASSERT_EQ(gf::multiply(x, y), product) << a << " * " << b;
      if (y != 0) {
        ASSERT_EQ(gf::divide(product, y), x) << a << " * " << b << " / " << b;
      }
    }
    for (unsigned exponent : {0u, 1u, 2u, 3u, 7u, 254u, 255u, 256u, 1000u}) {
      ASSERT_EQ(gf::power(x, exponent), reference::power(x, exponent)) << a << "^" << exponent;
    }
  }
}

TEST(CauchyFormTest, IsFoundForRandomPointsAndScalesAndDescribesTheMatrix) {
  std::mt19937 random(3);
  for (const auto &[k, m] : {std::pair{2u, 2u}, {2u, 7u}, {7u, 2u}, {10u, 4u}, {40u, 30u}, {128u, 128u}, {2u, 254u}}) {
    const Matrix matrix = random_cauchy(random, k, m);
    const auto form = find_cauchy_form(matrix);
    ASSERT_TRUE(form.has_value()) << k << ", " << m;
    ASSERT_EQ(expand(*form, k), matrix) << k << ", " << m;
    EXPECT_EQ(std::set(form->points.begin(), form->points.end()).size(), k + m) << "points repeat";
    EXPECT_EQ(std::count(form->scales.begin(), form->scales.end(), 0), 0);
  }
}

TEST(CauchyFormTest, IsRefusedWhenAnyCellIsChanged) {
  std::mt19937 random(4);
  const unsigned k = 5, m = 4;
  const Matrix matrix = random_cauchy(random, k, m);
  for (unsigned r = 0; r < m; ++r) {
    for (unsigned c = 0; c < k; ++c) {
      for (unsigned value = 0; value < 256; ++value) {
        Matrix changed = matrix;
        changed.at(r, c) = static_cast<std::uint8_t>(value);
        ASSERT_EQ(find_cauchy_form(changed).has_value(), changed == matrix) << r << ", " << c << " = " << value;
      }
    }
  }
}

TEST(CauchyFormTest, IsRefusedForRepeatedPointsOtherMdsCodesAndTrivialSizes) {
  std::mt19937 random(5);
  const Matrix matrix = random_cauchy(random, 5, 4);
  Matrix equal_columns = matrix, equal_rows = matrix;
  for (unsigned r = 0; r < 4; ++r) equal_columns.at(r, 3) = matrix.at(r, 1);
  for (unsigned c = 0; c < 5; ++c) equal_rows.at(3, c) = matrix.at(2, c);
  EXPECT_FALSE(find_cauchy_form(equal_columns));
  EXPECT_FALSE(find_cauchy_form(equal_rows));
  EXPECT_FALSE(find_cauchy_form(find_preset("zfs-raidz")->make(10, 3)));  // 1 ; a ; a^2: MDS, but no Reed-Solomon code
  EXPECT_FALSE(find_cauchy_form(random_cauchy(random, 5, 1)));
  EXPECT_FALSE(find_cauchy_form(random_cauchy(random, 1, 5)));
  EXPECT_FALSE(find_cauchy_form(Matrix(0, 5)));
}

// A form is used as a proof of MDS: every small random matrix that it accepts must be MDS.
TEST(CauchyFormTest, AcceptsOnlyMdsCodes) {
  std::mt19937 random(6);
  unsigned found = 0;
  for (unsigned round = 0; round < 20000; ++round) {
    const Matrix matrix = random_matrix(random, 2, 2 + round % 3);
    if (!find_cauchy_form(matrix)) continue;
    ++found;
    ASSERT_TRUE(every_minor_is_regular(matrix));
  }
  EXPECT_GT(found, 1000u);
}

// Random matrices, and Cauchy matrices with one cell changed: most of these that are refuted have one singular minor,
// of any order and at any place.
TEST(ProveMds, AgreesWithTheRankOfEverySubmatrix) {
  std::mt19937 random(7);
  unsigned proven = 0, refuted = 0, of_one_cell = 0;
  for (unsigned round = 0; round < 800; ++round) {
    const bool is_random = round % 2 == 0;
    const unsigned rows = is_random ? 1 + random() % 5 : 5, columns = is_random ? 1 + random() % 5 : 5;
    Matrix matrix = is_random ? random_matrix(random, rows, columns) : random_cauchy(random, columns, rows);
    if (!is_random) matrix.at(random() % rows, random() % columns) = static_cast<std::uint8_t>(random());
    const bool expected = every_minor_is_regular(matrix);
    ASSERT_EQ(prove_mds(matrix), expected ? MdsProof::proven : MdsProof::refuted) << rows << " x " << columns;
    ++(expected ? proven : refuted);
    of_one_cell += !is_random && !expected;
  }
  EXPECT_GT(proven, 100u);
  EXPECT_GT(refuted, 20u);
  EXPECT_GT(of_one_cell, 50u);
}

TEST(ProveMds, CountsMinorsExactlyAndComputesNothingAboveTheLimit) {
  std::mt19937 random(9);
  const Matrix matrix = random_cauchy(random, 6, 4);  // C(10, 4) - 1 = 209 minors
  EXPECT_EQ(prove_mds(matrix, 209), MdsProof::proven);
  const std::uint64_t before = multiply_add_count();
  EXPECT_EQ(prove_mds(matrix, 208), MdsProof::too_large);
  EXPECT_EQ(prove_mds(random_matrix(random, 128, 128)), MdsProof::too_large);  // C(256, 128) does not fit 64 bits
  EXPECT_EQ(multiply_add_count(), before);
  EXPECT_EQ(prove_mds(Matrix(0, 7)), MdsProof::proven);
  EXPECT_EQ(prove_mds(random_cauchy(random, 250, 1)), MdsProof::proven);
  EXPECT_EQ(prove_mds(random_cauchy(random, 1, 250)), MdsProof::proven);
}

}  // namespace
}  // namespace tandem::core
