// SPDX-License-Identifier: Apache-2.0
// The reduction of verify's records, in Thrust. Runs on the host the same text that nvcc compiles for the GPU, and
// compares it with a loop over the tiles of all bytes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "core/backend.hpp"
#include "device/kernel_text.hpp"
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

  Records records() const {
    return {words.data(), rows, range.begin, range.end, range.length, range.tile_bytes, range.tile_count};
  }
};

struct Result {
  std::vector<Found> found;
  std::vector<Range> ranges;
  std::uint64_t range_count;
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
      if (start != touches) result.ranges.push_back({row, 0, start + pair[1], 0, 0});
      result.ranges.back().end_bytes = touches = from.tile_end(record);
      result.ranges.back().byte_count += device::mismatch_count(pair);
    }
    result.found.push_back({all.byte_count, all.first_bytes});
  }
  result.range_count = result.ranges.size();
  return result;
}

void check(const Case &from, std::uint64_t capacity) {
  const Result want = expected(from);
  Host host;
  Result result;
  result.found.assign(from.rows, {77, 77});
  result.ranges.assign(capacity + 1, {77, 77, 77, 77, 77});  // one behind the end, which must not change
  result.range_count = run(host, from.records(), result.found.data(), result.ranges.data(), capacity);
  EXPECT_EQ(host.live, 0u);
  ASSERT_EQ(result.range_count, want.range_count);
  for (unsigned row = 0; row < from.rows; ++row) {
    EXPECT_EQ(result.found[row].byte_count, want.found[row].byte_count) << row;
    EXPECT_EQ(result.found[row].first_bytes, want.found[row].first_bytes) << row;
  }
  const std::uint64_t written = std::min(capacity, want.range_count);
  for (std::uint64_t i = 0; i < written; ++i) {
    EXPECT_EQ(result.ranges[i].output, want.ranges[i].output) << i;
    EXPECT_EQ(result.ranges[i].reserved, 0u);
    EXPECT_EQ(result.ranges[i].begin_bytes, want.ranges[i].begin_bytes) << i;
    EXPECT_EQ(result.ranges[i].end_bytes, want.ranges[i].end_bytes) << i;
    EXPECT_EQ(result.ranges[i].byte_count, want.ranges[i].byte_count) << i;
  }
  EXPECT_EQ(result.ranges[written].output, 77u);
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
  Found found[3] = {};
  EXPECT_EQ(run(host, made.records(), found, nullptr, 0), 0u);
  EXPECT_EQ(host.allocations, 0u);
  EXPECT_EQ(host.fetched_bytes, 0u);
  for (const Found &each : found) {
    EXPECT_EQ(each.byte_count, 0u);
    EXPECT_EQ(each.first_bytes, UINT64_MAX);
  }
}

// The tail of one output and the head of the next lie side by side in no shard.
TEST(CudaSummarise, EndsOfNeighbouringOutputsAreApart) {
  Case made(5, 5 + 3 * 64, 5 + 3 * 64 + 7, 64, 3);
  made.note(made.range.tile_count + 1, 0, 1, 6);
  made.note(made.range.tile_count, 1, 2, 0);
  made.note(0, 1, 1, 63);
  made.note(2, 2, 1, 1);
  made.note(made.range.tile_count + 1, 2, 7, 0);
  EXPECT_EQ(expected(made).range_count, 3u);
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

TEST(CudaSummarise, GivesMemoryBackWhenThereIsNoMore) {
  Case made(0, 640, 640, 64, 2);
  for (const std::uint64_t tile : {0, 2, 4, 6}) made.note(tile, 1, 1, 1);
  for (std::uint64_t nth = 0;; ++nth) {
    Host host;
    host.fail_at = nth;
    Found found[2];
    Range ranges[2];
    try {
      EXPECT_EQ(run(host, made.records(), found, ranges, 2), 4u);
      EXPECT_EQ(host.live, 0u);
      EXPECT_EQ(nth, host.allocations);
      EXPECT_GE(nth, 3u);
      return;
    } catch (const std::bad_alloc &) {
      EXPECT_EQ(host.live, 0u);
    }
  }
}

}  // namespace
}  // namespace tandem::gpu::summarise
