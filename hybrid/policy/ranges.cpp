// SPDX-License-Identifier: Apache-2.0
#include "hybrid/policy/ranges.hpp"

#include <algorithm>

namespace tandem::hybrid {

// The first range that ends at `position` or beyond.
std::vector<Range>::iterator RangeSet::first_at(std::uint64_t position) noexcept {
  return std::lower_bound(ranges_.begin(), ranges_.end(), position,
                          [](const Range &range, std::uint64_t at) { return range.end < at; });
}

void RangeSet::add(const Range &range) {
  if (range.begin == range.end) return;
  Range whole = range;
  const auto first = first_at(range.begin);
  auto last = first;
  for (; last != ranges_.end() && last->begin <= range.end; ++last) {
    whole.begin = std::min(whole.begin, last->begin);
    whole.end = std::max(whole.end, last->end);
    bytes_ -= last->bytes();
  }
  bytes_ += whole.bytes();
  if (first == last) {
    ranges_.insert(first, whole);
  } else {
    *first = whole;
    ranges_.erase(first + 1, last);
  }
}

void RangeSet::remove(const Range &range) {
  if (range.begin == range.end) return;  // an empty range would split the range around it
  auto at = first_at(range.begin);
  while (at != ranges_.end() && at->begin < range.end) {
    const Range before = {at->begin, std::min(std::max(at->begin, range.begin), at->end)};
    const Range after = {std::max(at->begin, std::min(at->end, range.end)), at->end};
    bytes_ -= at->bytes() - before.bytes() - after.bytes();
    if (before.bytes() > 0 && after.bytes() > 0) {
      *at = after;
      at = ranges_.insert(at, before) + 2;
    } else if (before.bytes() > 0) {
      *at++ = before;
    } else if (after.bytes() > 0) {
      *at++ = after;
    } else {
      at = ranges_.erase(at);
    }
  }
}

std::vector<Range> RangeSet::missing(const Range &range) const {
  std::vector<Range> rest;
  std::uint64_t position = range.begin;
  for (auto at = const_cast<RangeSet *>(this)->first_at(range.begin); at != ranges_.end() && at->begin < range.end;
       ++at) {
    if (position < at->begin) rest.push_back({position, at->begin});
    position = std::max(position, at->end);
  }
  if (position < range.end) rest.push_back({position, range.end});
  return rest;
}

}  // namespace tandem::hybrid
