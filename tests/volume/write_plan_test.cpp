// SPDX-License-Identifier: Apache-2.0
// Which I/Os a write to one stripe costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "volume/write_plan.hpp"

namespace tandem::volume {
namespace {

using Columns = std::vector<WriteColumn>;

// One letter a column: '.' untouched zeros, 'o' untouched data, 'w' written over zeros, 'W' over data, 'p' and 'P' the
// same for a column of which the write leaves a part (of zeros, of data).
Columns columns_of(const std::string &text) {
  Columns columns;
  for (const char letter : text) switch (letter) {
      case '.':
        columns.push_back({.written = false, .written_old = false, .remaining = true, .remaining_old = false});
        break;
      case 'o':
        columns.push_back({.written = false, .written_old = false, .remaining = true, .remaining_old = true});
        break;
      case 'w':
        columns.push_back({.written = true, .written_old = false, .remaining = false, .remaining_old = false});
        break;
      case 'W':
        columns.push_back({.written = true, .written_old = true, .remaining = false, .remaining_old = false});
        break;
      case 'p':
        columns.push_back({.written = true, .written_old = false, .remaining = true, .remaining_old = false});
        break;
      default:
        columns.push_back({.written = true, .written_old = true, .remaining = true, .remaining_old = true});
        break;
    }
  return columns;
}

struct Found {
  WritePlan plan{};
  std::string reads;  // 'r' where a column is read
};

Found plan_of(const std::string &text, std::uint32_t m, bool delayed = false) {
  const Columns columns = columns_of(text);
  Found found;
  found.plan = plan_write(columns, m, delayed);
  for (const WriteColumn &column : columns) found.reads += found.plan.reads(column) ? 'r' : '-';
  return found;
}

std::uint32_t operations(const WritePlan &plan) {
  return plan.data_reads + plan.parity_reads + plan.data_writes + plan.parity_writes;
}

TEST(WritePlan, TheWayWithTheFewestReads) {
  EXPECT_EQ(plan_of("Wooooooo", 2).plan.way, TANDEM_VOLUME_MODIFY);
  EXPECT_EQ(plan_of("Wooooooo", 2).reads, "r-------");
  EXPECT_EQ(plan_of("wooooooo", 2).plan.way, TANDEM_VOLUME_AVOID);
  EXPECT_EQ(plan_of("wooooooo", 2).reads, "--------");
  EXPECT_EQ(plan_of("WWWWWWWo", 2).plan.way, TANDEM_VOLUME_RECONSTRUCT);
  EXPECT_EQ(plan_of("WWWWWWWo", 2).reads, "-------r");
  EXPECT_EQ(plan_of("WWWWWWWW", 2).plan.way, TANDEM_VOLUME_FULL_STRIPE);
  EXPECT_EQ(plan_of("WWWWWWWW", 2, true).plan.way, TANDEM_VOLUME_DELAY);
  // 5 columns of data, 1 written: 1 + 3 reads to modify, 4 to reconstruct.
  EXPECT_EQ(plan_of("Woooo", 3).plan.way, TANDEM_VOLUME_RECONSTRUCT) << "as many reads, and no old parity is trusted";
  EXPECT_EQ(plan_of("Woooo", 3).reads, "-rrrr");
  // Zeros are not read.
  EXPECT_EQ(plan_of("W..o.", 1).reads, "---r-");
  // The rest of a column counts as one more to reconstruct from.
  EXPECT_EQ(plan_of("PW", 2).reads, "r-");
  EXPECT_EQ(plan_of("PW", 2).plan.way, TANDEM_VOLUME_RECONSTRUCT);
  EXPECT_EQ(plan_of("pp", 2).plan.way, TANDEM_VOLUME_RECONSTRUCT);
  EXPECT_EQ(operations(plan_of("pp", 2).plan), 4U);
}

TEST(WritePlan, NoWayIsCheaperThanTheOneFound) {
  const std::string letters = ".owWpP";
  for (std::uint32_t number = 0; number < 6 * 6 * 6 * 6; ++number) {
    std::string text;
    for (std::uint32_t i = 0, rest = number; i < 4; ++i, rest /= 6) text += letters[rest % 6];
    if (text.find_first_of("wWpP") == std::string::npos) continue;
    for (const std::uint32_t m : {1U, 2U, 3U}) {
      std::uint32_t modify = 0, reconstruct = 0, written = 0;
      for (const WriteColumn &column : columns_of(text)) {
        modify += column.written_old;
        reconstruct += column.remaining_old;
        written += column.written;
      }
      if (modify + reconstruct > 0) modify += m;
      const Found found = plan_of(text, m);
      EXPECT_EQ(operations(found.plan), written + m + std::min(modify, reconstruct)) << text << ' ' << m;
      EXPECT_EQ(operations(plan_of(text, m, true).plan), written) << text;
      EXPECT_EQ(std::count(found.reads.begin(), found.reads.end(), 'r'), found.plan.data_reads) << text << ' ' << m;
    }
  }
}

}  // namespace
}  // namespace tandem::volume
