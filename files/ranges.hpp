// SPDX-License-Identifier: Apache-2.0
// A set of block numbers as ranges, of bounded size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace tandem::files {

class Ranges {
 public:
  using Ends = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // first, end; in order, with gaps between them
  static constexpr std::size_t kMostRanges = 65536;
  static constexpr std::size_t kMostRangesOfSet = std::size_t{1} << 20;  // 16 MiB, as long as the files are fewer

  // The limit for each of file_count objects, so that the memory of all is bounded.
  static std::size_t share_of(std::size_t file_count) {
    return std::clamp<std::size_t>(kMostRangesOfSet / std::max<std::size_t>(file_count, 1), 16, kMostRanges);
  }

  explicit Ranges(std::size_t most = kMostRanges) : most_(most) {}

  // Adds first .. end - 1. Beyond `most` ranges, all ranges become one, including the gaps.
  void add(std::uint64_t first, std::uint64_t end) {
    if (first == end) return;
    count_ += end - first;
    // Those that touch the new one.
    const auto from = std::partition_point(ends_.begin(), ends_.end(), [&](const auto &e) { return e.second < first; });
    const auto to = std::partition_point(from, ends_.end(), [&](const auto &e) { return e.first <= end; });
    if (from == to) {
      ends_.emplace(from, first, end);
    } else {
      *from = {std::min(first, from->first), std::max(end, std::prev(to)->second)};
      ends_.erase(std::next(from), to);
    }
    if (ends_.size() <= most_) return;
    ends_ = Ends{{ends_.front().first, ends_.back().second}};
    exact_ = false;
  }

  // Adds the ends(), count() and is_exact() of a set with other numbers.
  void merge(const Ends &ends, std::uint64_t count, bool exact) {
    const std::uint64_t before = count_;
    for (const auto &[first, end] : ends) add(first, end);
    count_ = before + count;
    exact_ = exact_ && exact;
  }

  bool contains(std::uint64_t number) const {
    const auto range =
        std::partition_point(ends_.begin(), ends_.end(), [&](const auto &e) { return e.second <= number; });
    return range != ends_.end() && range->first <= number;
  }

  bool empty() const { return ends_.empty(); }
  bool is_exact() const { return exact_; }  // false: it has more numbers than were added
  // How many numbers were added, repeated ones included.
  std::uint64_t count() const { return count_; }
  const Ends &ends() const { return ends_; }

 private:
  Ends ends_;
  std::uint64_t count_ = 0;
  std::size_t most_;
  bool exact_ = true;
};

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
