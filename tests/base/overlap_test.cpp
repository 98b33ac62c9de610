// SPDX-License-Identifier: Apache-2.0
// The quick answer to whether buffers overlap is that of the full search.
#include "base/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/random.hpp"

namespace tandem::test {
namespace {

TEST(Overlap, TheQuickAnswerIsThatOfTheSearch) {
  Random random(3);
  unsigned overlapping = 0;
  constexpr unsigned kRounds = 200'000;
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::size_t bytes = random.between(1, 6), room = random.between(8, 67);
    // The buffers are not touched: they may lie at either end of the address space.
    auto *const base = reinterpret_cast<std::byte *>(random.below(2) == 0 ? 0x10 : UINTPTR_MAX - 100);
    std::vector<std::byte *> inputs(random.below(5)), outputs(random.between(1, 4));
    for (auto *list : {&inputs, &outputs})
      for (std::byte *&each : *list) each = base + random.below(room);
    if (random.below(2) == 0) std::sort(outputs.begin(), outputs.end());
    std::vector<base::Extent> extents;
    for (std::byte *each : outputs) extents.push_back({each, bytes, true, 0});
    for (std::byte *each : inputs) extents.push_back({each, bytes, false, 0});
    base::Overlap found;
    const bool overlaps = base::find_overlap(extents, &found);
    ASSERT_EQ(base::any_overlap(inputs, outputs, bytes), overlaps) << "round " << round;
    overlapping += overlaps;
  }
  EXPECT_GT(overlapping, kRounds / 4);
  EXPECT_LT(overlapping, kRounds * 3 / 4);
}

}  // namespace
}  // namespace tandem::test
