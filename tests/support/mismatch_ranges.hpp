// SPDX-License-Identifier: Apache-2.0
// Rules for the ranges of a verify, for every backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tandem::test {

struct RangeOfRow {
  unsigned row;
  std::uint64_t begin, end, count;
};

// `differs`: for each row and byte, 1 where it does not match, else 0. `all_count`: of ranges; where there are more
// than in `ranges`, these are the first of them.
inline testing::AssertionResult are_ranges_of(const std::vector<RangeOfRow> &ranges, std::uint64_t all_count,
                                              const std::vector<std::vector<std::uint8_t>> &differs) {
  const auto wrong = [](std::size_t i, const char *what) {
    return testing::AssertionFailure() << "range " << i << ": " << what;
  };
  if (ranges.size() > all_count) return testing::AssertionFailure() << "more ranges than " << all_count;
  unsigned row = 0;
  std::uint64_t at = 0;  // from here on it is not told yet
  // Up to this place no byte that differs may be left out.
  const auto skip_to = [&](unsigned to_row, std::uint64_t to) {
    const auto skips_none = [&](std::uint64_t end) {
      return at >= end || std::memchr(differs[row].data() + at, 1, end - at) == nullptr;
    };
    for (; row < to_row; ++row, at = 0)
      if (!skips_none(differs[row].size())) return false;
    if (row < differs.size() && !skips_none(to)) return false;
    at = std::max(at, to);
    return true;
  };
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const RangeOfRow &range = ranges[i];
    if (range.row >= differs.size() || range.begin >= range.end || range.end > differs[range.row].size())
      return wrong(i, "not in the shards");
    if (range.row < row || (range.row == row && range.begin < at)) return wrong(i, "not behind the one before it");
    if (!differs[range.row][range.begin]) return wrong(i, "its first byte matches");
    if (!skip_to(range.row, range.begin)) return wrong(i, "bytes before it are left out");
    std::uint64_t count = 0;
    for (; at < range.end; ++at) count += differs[row][at];
    if (count != range.count) return wrong(i, "its bytes are not counted right");
  }
  if (ranges.size() == all_count && !skip_to(static_cast<unsigned>(differs.size()), 0))
    return testing::AssertionFailure() << "bytes behind the last range are left out";
  return testing::AssertionSuccess();
}

}  // namespace tandem::test
