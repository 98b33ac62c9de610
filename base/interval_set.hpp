// SPDX-License-Identifier: Apache-2.0
// A set of numbers as intervals, of bounded size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace tandem::base {

class IntervalSet {
 public:
  using Ends = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // first, end; in order, with gaps between them
  static constexpr std::size_t kMost = 65536;                         // 1 MiB

  explicit IntervalSet(std::size_t most = kMost) : most_(most) {}

  // Adds first .. end - 1. Beyond `most` intervals every two neighbours become one, with the gap between them.
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
    if (ends_.size() > most_) halve();
  }

  // Adds the ends(), count() and is_exact() of a set with other numbers.
  void merge(const Ends &ends, std::uint64_t count, bool exact) {
    const std::uint64_t before = count_;
    for (const auto &[first, end] : ends) add(first, end);
    count_ = before + count;
    exact_ = exact_ && exact;
  }

  bool contains(std::uint64_t number) const {
    const auto interval =
        std::partition_point(ends_.begin(), ends_.end(), [&](const auto &e) { return e.second <= number; });
    return interval != ends_.end() && interval->first <= number;
  }

  bool empty() const { return ends_.empty(); }
  bool is_exact() const { return exact_; }  // false: it has more numbers than were added
  // How many numbers were added, repeated ones included.
  std::uint64_t count() const { return count_; }
  const Ends &ends() const { return ends_; }

 private:
  void halve() {
    std::size_t count = 0;
    for (std::size_t i = 0; i < ends_.size(); i += 2)
      ends_[count++] = {ends_[i].first, ends_[std::min(i + 1, ends_.size() - 1)].second};
    ends_.resize(count);
    exact_ = false;
  }

  Ends ends_;
  std::uint64_t count_ = 0;
  std::size_t most_;
  bool exact_ = true;
};

}  // namespace tandem::base
