// A set of block numbers as ranges, of bounded size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace tandem::files {

class Ranges {
 public:
  static constexpr std::size_t kMostRanges = 65536;

  // Adds first .. end - 1. Beyond kMostRanges all become one, with the gaps between them.
  void add(std::uint64_t first, std::uint64_t end) {
    if (first == end) return;
    count_ += end - first;
    auto next = ends_.upper_bound(first);
    if (next != ends_.begin()) {
      const auto before = std::prev(next);
      if (before->second >= first) {
        first = before->first;
        end = std::max(end, before->second);
        ends_.erase(before);
      }
    }
    while (next != ends_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(first, end);
    if (ends_.size() > kMostRanges) ends_ = {{ends_.begin()->first, std::prev(ends_.end())->second}};
  }

  bool contains(std::uint64_t number) const {
    const auto next = ends_.upper_bound(number);
    return next != ends_.begin() && number < std::prev(next)->second;
  }

  bool empty() const { return ends_.empty(); }
  // Of what was added, each number counted as often as it was.
  std::uint64_t count() const { return count_; }
  const std::map<std::uint64_t, std::uint64_t> &ends() const { return ends_; }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // first -> end
  std::uint64_t count_ = 0;
};

// The numbers of ranges, one after the other.
class RangeList {
 public:
  explicit RangeList(const Ranges &ranges) : ends_(ranges.ends().begin(), ranges.ends().end()) {
    for (const auto &[first, end] : ends_) count_ += end - first;
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t at(std::uint64_t place) const {  // place < count()
    auto range = ends_.begin();
    for (; place >= range->second - range->first; ++range) place -= range->second - range->first;
    return range->first + place;
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ends_;
  std::uint64_t count_ = 0;
};

}  // namespace tandem::files
