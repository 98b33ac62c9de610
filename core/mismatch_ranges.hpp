// Where a compare found differences, for a caller who wants more than the first one and their number.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::core {

// A part of one output with differences: the first byte of it differs, others may match.
struct MismatchRange {
  std::uint32_t output;
  std::uint64_t begin_bytes, end_bytes;  // offsets in the shard; the end is not of it
  std::uint64_t byte_count;              // of bytes that differ
};

// Ranges that hold every difference of a task, by output and then by place, disjoint.
struct MismatchRanges {
  std::uint64_t capacity = 0;
  std::vector<MismatchRange> list;  // the first ones, `capacity` at most
  std::uint64_t count = 0;          // of all that there are
  bool is_filled = false;           // by a backend that sees them while it compares

  // Puts in what was found in another part of the task: the first ones of `all_count`, at least `capacity` of them
  // where there are so many.
  void merge(const std::vector<MismatchRange> &found, std::uint64_t all_count);
};

// Puts ranges together out of tiles that come by rising place. Tiles with differences that lie side by side make one
// range.
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
