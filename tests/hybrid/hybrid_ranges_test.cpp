// SPDX-License-Identifier: Apache-2.0
// Sets of ranges against a bitmap.
#include "hybrid/policy/ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

using hybrid::Range;
using hybrid::RangeSet;

std::vector<Range> holes(const std::vector<bool> &bits, const Range &in) {
  std::vector<Range> holes;
  for (std::uint64_t i = in.begin; i < in.end; ++i) {
    if (bits[i]) continue;
    if (!holes.empty() && holes.back().end == i) {
      ++holes.back().end;
    } else {
      holes.push_back({i, i + 1});
    }
  }
  return holes;
}

TEST(HybridRanges, AgainstABitmap) {
  constexpr std::uint64_t kEnd = 97;
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    RangeSet set;
    std::vector<bool> bits(kEnd, false);
    for (int step = 0; step < 200; ++step) {
      // Short ranges leave many holes, long ones close them.
      const std::uint64_t begin = random.below(kEnd + 1);
      const std::uint64_t most = random.chance(20) ? kEnd - begin : std::min<std::uint64_t>(kEnd - begin, 8);
      const Range range = {begin, begin + random.below(most + 1)};
      const bool add = random.chance(50);
      add ? set.add(range) : set.remove(range);
      for (std::uint64_t i = range.begin; i < range.end; ++i) bits[i] = add;

      const auto count = static_cast<std::uint64_t>(std::count(bits.begin(), bits.end(), true));
      ASSERT_EQ(set.bytes(), count);
      ASSERT_EQ(set.empty(), count == 0);
      ASSERT_EQ(set.missing({0, kEnd}), holes(bits, {0, kEnd}));
      const std::uint64_t from = random.below(kEnd + 1), to = random.between(from, kEnd);
      ASSERT_EQ(set.missing({from, to}), holes(bits, {from, to}));
      if (count == 0) continue;
      const auto first = static_cast<std::uint64_t>(std::find(bits.begin(), bits.end(), true) - bits.begin());
      const auto end = static_cast<std::uint64_t>(
          std::find(bits.begin() + static_cast<std::ptrdiff_t>(first), bits.end(), false) - bits.begin());
      ASSERT_EQ(set.first(), (Range{first, end})) << "neighbours are one range";
    }
  }
}

TEST(HybridRanges, UpToTheLastByteOfAll) {
  RangeSet set;
  set.add({0, UINT64_MAX});
  set.remove({5, 7});
  EXPECT_EQ(set.bytes(), UINT64_MAX - 2);
  EXPECT_EQ(set.missing({0, UINT64_MAX}), (std::vector<Range>{{5, 7}}));
  set.add({5, 7});
  EXPECT_EQ(set.first(), (Range{0, UINT64_MAX}));
}

}  // namespace
}  // namespace tandem::test
