// SPDX-License-Identifier: Apache-2.0
// What a compare found, merged from its records, against a loop over the tiles of all bytes.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/mismatch_ranges.hpp"
#include "device/kernel_chooser.hpp"
#include "tests/support/random.hpp"

namespace tandem::device {
namespace {

using test::Random;

constexpr std::uint64_t kSeed = 20261122;

struct Case {
  KernelRange range;
  unsigned rows;
  std::vector<std::uint32_t> words;

  Case(std::uint64_t begin, std::uint64_t end, std::uint64_t length, std::uint64_t tile_bytes, unsigned row_count)
      : rows(row_count) {
    range.begin = begin;
    range.end = end;
    range.length = length;
    range.tile_bytes = tile_bytes;
    range.tile_count = (end - begin + tile_bytes - 1) / tile_bytes;
    range.record_count = range.tile_count + 2;
    words.resize(range.record_bytes(rows) / sizeof(std::uint32_t), UINT32_MAX);
  }

  std::uint64_t tile_end(std::uint64_t record) const {
    if (record >= range.tile_count) return record == range.tile_count ? range.begin : range.length;
    return std::min(range.end, range.begin + (record + 1) * range.tile_bytes);
  }
  std::uint64_t bytes_of(std::uint64_t record) const { return tile_end(record) - range.record_start(record); }

  // `count` bytes of the record differ, the first one at `first`.
  void note(std::uint64_t record, unsigned row, std::uint32_t count, std::uint32_t first) {
    ASSERT_LE(std::uint64_t{first} + count, bytes_of(record));
    words[0] = std::min(words[0], static_cast<std::uint32_t>(record));
    words[1] = std::min(words[1], static_cast<std::uint32_t>(~(record + 1)));
    words[(1 + record * rows + row) * 2] = count - 1;
    words[(1 + record * rows + row) * 2 + 1] = first;
  }
};

struct Result {
  std::vector<core::Mismatch> found;
  std::vector<core::MismatchRange> ranges;
};

// The same by core's own merge of mismatches, and a loop.
Result expected(const Case &from) {
  Result result;
  for (unsigned row = 0; row < from.rows; ++row) {
    core::Mismatch all;
    std::map<std::uint64_t, std::uint64_t> by_start;  // where it lies in the shard -> record
    for (std::uint64_t record = 0; record < from.range.record_count; ++record) {
      const std::uint32_t *pair = &from.words[(1 + record * from.rows + row) * 2];
      if (mismatch_count(pair) == 0) continue;
      all.merge({mismatch_count(pair), from.range.record_start(record) + pair[1]});
      by_start[from.range.record_start(record)] = record;
    }
    std::uint64_t touches = UINT64_MAX;
    for (const auto &[start, record] : by_start) {
      const std::uint32_t *pair = &from.words[(1 + record * from.rows + row) * 2];
      if (start != touches) result.ranges.push_back({row, start + pair[1], 0, 0});
      result.ranges.back().end_bytes = touches = from.tile_end(record);
      result.ranges.back().byte_count += mismatch_count(pair);
    }
    result.found.push_back(all);
  }
  return result;
}

void check(const Case &from, std::uint64_t capacity) {
  const Result want = expected(from);
  std::vector<core::Mismatch> mismatches(from.rows), again(from.rows);
  core::MismatchRanges ranges;
  ranges.capacity = capacity;
  const FoundTiles tiles = found_tiles(from.words.data());
  const std::uint32_t *const records = from.words.data() + tiles.offset_bytes(from.rows) / sizeof *records;
  ASSERT_LE(tiles.offset_bytes(from.rows) + tiles.record_bytes(from.rows), from.range.record_bytes(from.rows));
  merge_found(from.range, tiles, records, 0, from.rows, mismatches.data(), &ranges);
  merge_records(from.range, from.words.data(), 0, from.rows, again.data());
  EXPECT_TRUE(ranges.is_filled);
  ASSERT_EQ(ranges.count, want.ranges.size());
  ASSERT_EQ(ranges.list.size(), std::min<std::uint64_t>(capacity, want.ranges.size()));
  for (unsigned row = 0; row < from.rows; ++row) {
    EXPECT_EQ(mismatches[row].byte_count, want.found[row].byte_count) << row;
    EXPECT_EQ(mismatches[row].first_bytes, want.found[row].first_bytes) << row;
    EXPECT_EQ(again[row].byte_count, want.found[row].byte_count) << row;
    EXPECT_EQ(again[row].first_bytes, want.found[row].first_bytes) << row;
  }
  for (std::size_t i = 0; i < ranges.list.size(); ++i) {
    EXPECT_EQ(ranges.list[i].output, want.ranges[i].output) << i;
    EXPECT_EQ(ranges.list[i].begin_bytes, want.ranges[i].begin_bytes) << i;
    EXPECT_EQ(ranges.list[i].end_bytes, want.ranges[i].end_bytes) << i;
    EXPECT_EQ(ranges.list[i].byte_count, want.ranges[i].byte_count) << i;
  }
}

TEST(Records, RandomRecords) {
  Random random(kSeed);
  for (unsigned round = 0; round < 600; ++round) {
    SCOPED_TRACE(round);
    const unsigned rows = 1 + static_cast<unsigned>(random.below(round % 10 == 0 ? 255 : 6));
    const std::uint64_t tile = std::uint64_t{16} << random.below(8), begin = random.below(20);
    const std::uint64_t end = begin + 1 + random.below(tile * (1 + random.below(40)));
    Case made(begin, end, end + random.below(20), tile, rows);
    const std::uint64_t one_in = round % 50 == 0 ? UINT64_MAX : std::uint64_t{1} << random.below(7);
    for (std::uint64_t record = 0; record < made.range.record_count; ++record) {
      for (unsigned row = 0; row < rows; ++row) {
        const std::uint64_t bytes = made.bytes_of(record);
        if (bytes == 0 || random.below(one_in) != 0) continue;
        const auto first = static_cast<std::uint32_t>(random.below(bytes));
        made.note(record, row, static_cast<std::uint32_t>(1 + random.below(bytes - first)), first);
      }
    }
    for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, random.below(20), std::uint64_t{20000}})
      check(made, capacity);
    if (HasFailure()) return;
  }
}

// The tail of one output and the head of the next lie side by side in no shard.
TEST(Records, EndsOfNeighbouringOutputsAreApart) {
  Case made(5, 5 + 3 * 64, 5 + 3 * 64 + 7, 64, 3);
  made.note(made.range.tile_count + 1, 0, 1, 6);
  made.note(made.range.tile_count, 1, 2, 0);
  made.note(0, 1, 1, 63);
  made.note(2, 2, 1, 1);
  made.note(made.range.tile_count + 1, 2, 7, 0);
  EXPECT_EQ(expected(made).ranges.size(), 3u);
  check(made, 10);
  check(made, 2);
}

TEST(Records, RangesWithoutTiles) {
  Case made(0, 0, 9, 64, 2);
  made.note(made.range.tile_count + 1, 1, 3, 4);
  check(made, 4);
}

// Shards of terabytes; tiles with counts that add up to more than 32 bits; a tile with the only mismatch at its last
// byte.
TEST(Records, Beyond32Bits) {
  constexpr std::uint64_t kTile = std::uint64_t{1} << 31;
  Case made(4, 4 + 1000 * kTile, 4 + 1000 * kTile + 12, kTile, 2);
  for (std::uint64_t tile = 500; tile < 504; ++tile) made.note(tile, 1, static_cast<std::uint32_t>(kTile), 0);
  made.note(999, 0, 1, static_cast<std::uint32_t>(kTile - 1));
  made.note(1001, 0, 12, 0);
  const Result want = expected(made);
  EXPECT_EQ(want.found[1].byte_count, 4 * kTile);
  EXPECT_EQ(want.ranges[0].byte_count, 13u);
  check(made, 10);
}

}  // namespace
}  // namespace tandem::device
