// SPDX-License-Identifier: Apache-2.0
#include "base/interval_set.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tandem::test {
namespace {

using base::IntervalSet;

TEST(IntervalSet, HoldsWhatWasAdded) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    IntervalSet set;
    std::vector<bool> expected(300);
    std::uint64_t added = 0;
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t first = random() % 280, end = first + random() % 20;
      set.add(first, end);
      added += end - first;
      std::fill(expected.begin() + static_cast<std::ptrdiff_t>(first),
                expected.begin() + static_cast<std::ptrdiff_t>(end), true);
      for (std::uint64_t number = 0; number < 300; ++number) ASSERT_EQ(set.contains(number), expected[number]);
    }
    EXPECT_EQ(set.count(), added);
    EXPECT_TRUE(set.is_exact());
    for (std::size_t i = 1; i < set.ends().size(); ++i)
      ASSERT_LT(set.ends()[i - 1].second, set.ends()[i].first) << "in order, and apart";
  }
}

// However many intervals there are: each number is in the set, and no gap that is left out has one.
TEST(IntervalSet, StaysWithinItsLength) {
  constexpr std::size_t kMost = 6;
  for (const bool in_order : {true, false}) {
    IntervalSet set(kMost), exact;
    EXPECT_TRUE(set.empty());
    std::mt19937_64 random(1);
    std::set<std::uint64_t> added;
    std::uint64_t count = 0, behind = 0;
    bool fits = true;
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t first = in_order ? behind + random() % 4 : random() % 3000, end = first + 1 + random() % 5;
      behind = end;
      set.add(first, end);
      exact.add(first, end);
      for (std::uint64_t number = first; number < end; ++number) added.insert(number);
      count += end - first;
      fits = fits && exact.ends().size() <= kMost;
      ASSERT_EQ(set.count(), count);
      ASSERT_LE(set.ends().size(), kMost);
      ASSERT_EQ(set.is_exact(), fits);
      if (fits) {
        ASSERT_EQ(set.ends(), exact.ends());
        continue;
      }
      ASSERT_GT(set.ends().size(), in_order ? kMost / 2 : 0) << "not more is forgotten than must be";
      ASSERT_EQ(set.ends().front().first, *added.begin());
      ASSERT_EQ(set.ends().back().second, *added.rbegin() + 1);
      for (std::size_t j = 1; j < set.ends().size(); ++j) {
        const std::uint64_t gap = set.ends()[j - 1].second, next = set.ends()[j].first;
        ASSERT_LT(gap, next);
        ASSERT_EQ(added.lower_bound(gap), added.lower_bound(next));
      }
    }
  }
}

TEST(IntervalSet, MergesWhatAnotherProcessHas) {
  IntervalSet set(3), other(3);
  set.add(10, 11);
  for (const std::uint64_t first : {20, 30, 40, 50}) other.add(first, first + 1);
  EXPECT_FALSE(other.is_exact());
  set.merge(other.ends(), other.count(), other.is_exact());
  EXPECT_FALSE(set.is_exact());
  EXPECT_EQ(set.count(), 5u);
  EXPECT_EQ(set.ends(), (IntervalSet::Ends{{10, 11}, {20, 31}, {40, 51}}));
}

}  // namespace
}  // namespace tandem::test
