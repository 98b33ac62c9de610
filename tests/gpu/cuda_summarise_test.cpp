// SPDX-License-Identifier: Apache-2.0
// The search for verify's records with a difference, in Thrust. Runs on the host the same text that nvcc compiles for
// the GPU, merges what it finds, and compares it with a loop over the tiles of all bytes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "core/mismatch_ranges.hpp"
#include "device/kernel_chooser.hpp"
#include "gpu/device_code/summarise_template.hpp"
#include "tests/support/random.hpp"

namespace tandem::gpu::summarise {
namespace {

using test::Random;

constexpr std::uint64_t kSeed = 20261122;

// All allocations are given back, after errors too.
struct Host {
  std::uint64_t live = 0, allocations = 0, fetched_bytes = 0, fail_at = UINT64_MAX;
  auto policy() { return thrust::seq; }
  void *allocate(std::uint64_t bytes) {
    if (allocations++ == fail_at) throw std::bad_alloc();
    ++live;
    return std::malloc(bytes);
  }
  void release(void *memory) noexcept {
    --live;
    std::free(memory);
  }
  void fetch(void *to, const void *from, std::uint64_t bytes) {
    fetched_bytes += bytes;
    std::memcpy(to, from, bytes);
  }
};

struct Case {
  device::KernelRange range;
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
    for (std::uint64_t i = 0; i < range.record_count * rows; ++i) words.insert(words.end(), {UINT32_MAX, UINT32_MAX});
  }

  std::uint64_t tile_end(std::uint64_t record) const {
    if (record >= range.tile_count) return record == range.tile_count ? range.begin : range.length;
    return std::min(range.end, range.begin + (record + 1) * range.tile_bytes);
  }
  std::uint64_t bytes_of(std::uint64_t record) const { return tile_end(record) - range.record_start(record); }

  // `count` bytes of the record differ, the first one at `first`.
  void note(std::uint64_t record, unsigned row, std::uint32_t count, std::uint32_t first) {
    ASSERT_LE(std::uint64_t{first} + count, bytes_of(record));
    words[(record * rows + row) * 2] = count - 1;
    words[(record * rows + row) * 2 + 1] = first;
  }

  std::uint64_t record_count() const { return range.record_count * rows; }
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
      const std::uint32_t *pair = &from.words[(record * from.rows + row) * 2];
      if (device::mismatch_count(pair) == 0) continue;
      all.merge({device::mismatch_count(pair), from.range.record_start(record) + pair[1]});
      by_start[from.range.record_start(record)] = record;
    }
    std::uint64_t touches = UINT64_MAX;
    for (const auto &[start, record] : by_start) {
      const std::uint32_t *pair = &from.words[(record * from.rows + row) * 2];
      if (start != touches) result.ranges.push_back({row, start + pair[1], 0, 0});
      result.ranges.back().end_bytes = touches = from.tile_end(record);
      result.ranges.back().byte_count += device::mismatch_count(pair);
    }
    result.found.push_back(all);
  }
  return result;
}

void check(const Case &from, std::uint64_t capacity) {
  const Result want = expected(from);
  Host host;
  std::vector<Found> found(from.record_count());
  found.resize(run(host, from.words.data(), from.record_count(), found.data(), found.size()));
  EXPECT_EQ(host.live, 0u);
  std::vector<device::FoundRecord> records;
  for (const Found &each : found) records.push_back({each.index, {each.words[0], each.words[1]}});
  std::vector<core::Mismatch> mismatches(from.rows);
  core::MismatchRanges ranges;
  ranges.capacity = capacity;
  device::merge_found(from.range, records, 0, from.rows, mismatches.data(), &ranges);
  EXPECT_TRUE(ranges.is_filled);
  ASSERT_EQ(ranges.count, want.ranges.size());
  ASSERT_EQ(ranges.list.size(), std::min<std::uint64_t>(capacity, want.ranges.size()));
  for (unsigned row = 0; row < from.rows; ++row) {
    EXPECT_EQ(mismatches[row].byte_count, want.found[row].byte_count) << row;
    EXPECT_EQ(mismatches[row].first_bytes, want.found[row].first_bytes) << row;
  }
  for (std::size_t i = 0; i < ranges.list.size(); ++i) {
    EXPECT_EQ(ranges.list[i].output, want.ranges[i].output) << i;
    EXPECT_EQ(ranges.list[i].begin_bytes, want.ranges[i].begin_bytes) << i;
    EXPECT_EQ(ranges.list[i].end_bytes, want.ranges[i].end_bytes) << i;
    EXPECT_EQ(ranges.list[i].byte_count, want.ranges[i].byte_count) << i;
  }
}

TEST(CudaSummarise, RandomRecords) {
  Random random(kSeed);
  for (unsigned round = 0; round < 600; ++round) {
    SCOPED_TRACE(round);
    const unsigned rows = 1 + static_cast<unsigned>(random.below(round % 10 == 0 ? 255 : 6));
    const std::uint64_t tile = std::uint64_t{16} << random.below(8), begin = random.below(20);
    const std::uint64_t end = begin + 1 + random.below(tile * (1 + random.below(40)));
    Case made(begin, end, end + random.below(20), tile, rows);
    const std::uint64_t one_in = std::uint64_t{1} << random.below(7);
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

TEST(CudaSummarise, NothingFoundTakesNoMemory) {
  const Case made(4, 4100, 4110, 64, 3);
  Host host;
  EXPECT_EQ(run(host, made.words.data(), made.record_count(), nullptr, 0), 0u);
  EXPECT_EQ(host.allocations, 0u);
}

// The caller asks again, with more room.
TEST(CudaSummarise, MoreThanTheCapacityAreCounted) {
  Case made(0, 640, 640, 64, 2);
  for (const std::uint64_t tile : {0, 2, 4, 6}) made.note(tile, 1, 1, 1);
  Host host;
  Found found[4] = {};
  EXPECT_EQ(run(host, made.words.data(), made.record_count(), found, 3), 4u);
  EXPECT_EQ(host.fetched_bytes, 0u);
  EXPECT_EQ(run(host, made.words.data(), made.record_count(), found, 4), 4u);
  EXPECT_EQ(found[0].index, 1u);
  EXPECT_EQ(found[3].index, 13u);
}

// The tail of one output and the head of the next lie side by side in no shard.
TEST(CudaSummarise, EndsOfNeighbouringOutputsAreApart) {
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

TEST(CudaSummarise, RangesWithoutTiles) {
  Case made(0, 0, 9, 64, 2);
  made.note(made.range.tile_count + 1, 1, 3, 4);
  check(made, 4);
}

// Shards of terabytes; tiles with counts that add up to more than 32 bits; a tile with the only mismatch at its last
// byte.
TEST(CudaSummarise, Beyond32Bits) {
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

TEST(CudaSummarise, ThereMayBeNoMemory) {
  Case made(0, 640, 640, 64, 2);
  made.note(4, 1, 1, 1);
  Host host;
  host.fail_at = 0;
  Found found[1];
  EXPECT_THROW(run(host, made.words.data(), made.record_count(), found, 1), std::bad_alloc);
  EXPECT_EQ(host.live, 0u);
}

}  // namespace
}  // namespace tandem::gpu::summarise
