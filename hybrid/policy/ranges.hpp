// SPDX-License-Identifier: Apache-2.0
// Sets of bytes of a job, as ranges.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::hybrid {

struct Range {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes() const noexcept { return end - begin; }
  bool operator==(const Range &) const = default;
};

class RangeSet {
 public:
  bool empty() const noexcept { return ranges_.empty(); }
  std::uint64_t bytes() const noexcept { return bytes_; }
  const Range &first() const noexcept { return ranges_.front(); }

  void add(const Range &range);
  void remove(const Range &range);
  // The parts of `range` that are not in the set.
  std::vector<Range> missing(const Range &range) const;

 private:
  std::vector<Range>::iterator first_at(std::uint64_t position) noexcept;

  std::vector<Range> ranges_;  // sorted, neither overlapping nor touching
  std::uint64_t bytes_ = 0;
};

}  // namespace tandem::hybrid
