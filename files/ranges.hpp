// SPDX-License-Identifier: Apache-2.0
// Sets of block numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/interval_set.hpp"

namespace tandem::files {

using Ranges = base::IntervalSet;

constexpr std::size_t kMostRangesOfSet = std::size_t{1} << 20;  // 16 MiB, as long as the files are fewer

// The limit for each of file_count objects, so that the memory of all is bounded.
constexpr std::size_t share_of_ranges(std::size_t file_count) {
  return std::clamp<std::size_t>(kMostRangesOfSet / std::max<std::size_t>(file_count, 1), 16, Ranges::kMost);
}

// The numbers of ranges, one after the other.
class RangeList {
 public:
  explicit RangeList(const Ranges &ranges) : ends_(ranges.ends()) {
    for (const auto &[first, end] : ends_) count_ += end - first;
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t at(std::uint64_t place) const {  // place < count()
    auto range = ends_.begin();
    for (; place >= range->second - range->first; ++range) place -= range->second - range->first;
    return range->first + place;
  }

 private:
  Ranges::Ends ends_;
  std::uint64_t count_ = 0;
};

}  // namespace tandem::files
