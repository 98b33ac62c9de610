// SPDX-License-Identifier: Apache-2.0
#include "core/mismatch_ranges.hpp"

#include <algorithm>
#include <tuple>

namespace tandem::core {

void MismatchRanges::merge(const std::vector<MismatchRange> &found, std::uint64_t all_count) {
  const auto comes_first = [](const MismatchRange &a, const MismatchRange &b) {
    return std::tie(a.output, a.begin_bytes) < std::tie(b.output, b.begin_bytes);
  };
  const auto old_count = static_cast<std::ptrdiff_t>(list.size());
  list.insert(list.end(), found.begin(), found.end());
  std::inplace_merge(list.begin(), list.begin() + old_count, list.end(), comes_first);
  if (list.size() > capacity) list.resize(static_cast<std::size_t>(capacity));
  count += all_count;
}

void RangeCollector::add(unsigned output, std::uint64_t tile_begin_bytes, std::uint64_t begin_bytes,
                         std::uint64_t end_bytes, std::uint64_t byte_count) {
  Output &of = outputs_[output];
  if (of.count != 0 && of.last.end_bytes == tile_begin_bytes) {
    of.last.end_bytes = end_bytes;
    of.last.byte_count += byte_count;
    return;
  }
  if (of.count != 0 && of.first.size() < capacity_) of.first.push_back(of.last);
  of.last = {output, begin_bytes, end_bytes, byte_count};
  ++of.count;
}

void RangeCollector::merge_into(MismatchRanges &ranges) const {
  std::vector<MismatchRange> found;
  std::uint64_t all_count = 0;
  for (const Output &of : outputs_) {
    all_count += of.count;
    const std::uint64_t room = capacity_ - std::min<std::uint64_t>(capacity_, found.size());
    const auto taken = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(room, of.first.size()));
    found.insert(found.end(), of.first.begin(), of.first.begin() + taken);
    if (of.count != 0 && found.size() < capacity_) found.push_back(of.last);
  }
  ranges.merge(found, all_count);
}

}  // namespace tandem::core
