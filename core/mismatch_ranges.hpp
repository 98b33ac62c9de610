// SPDX-License-Identifier: Apache-2.0
// The places where a compare found differences, for callers that want more than the first one and their number.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::core {

// A part of one output with differences. Its first byte differs; others may match.
struct MismatchRange {
  std::uint32_t output;
  std::uint64_t begin_bytes, end_bytes;  // offsets in the shard; end_bytes is exclusive
  std::uint64_t byte_count;              // of bytes that differ
};

// Ranges that hold every difference of a task, sorted by output and place, disjoint.
struct MismatchRanges {
  std::uint64_t capacity = 0;
  std::vector<MismatchRange> list;  // the first ones, `capacity` at most
  std::uint64_t count = 0;          // of all ranges, also those beyond the capacity
  bool is_filled = false;           // by a backend that sees them while it compares

  // Adds the ranges of another part of the task: the first ones of `all_count`, and at least `capacity` of them if
  // there are so many.
  void merge(const std::vector<MismatchRange> &found, std::uint64_t all_count);
};

// Joins tiles to ranges. Tiles come in rising order. Neighbouring tiles with differences make one range.
class RangeCollector {
 public:
  RangeCollector(unsigned output_count, std::uint64_t capacity) : capacity_(capacity), outputs_(output_count) {}

  // A tile's differences lie in [begin_bytes, end_bytes).
  void add(unsigned output, std::uint64_t tile_begin_bytes, std::uint64_t begin_bytes, std::uint64_t end_bytes,
           std::uint64_t byte_count);

  void merge_into(MismatchRanges &ranges) const;

 private:
  struct Output {
    std::vector<MismatchRange> first;  // without the last one
    MismatchRange last{};
    std::uint64_t count = 0;
  };
  std::uint64_t capacity_;
  std::vector<Output> outputs_;
};

}  // namespace tandem::core
