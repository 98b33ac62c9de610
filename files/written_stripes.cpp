// SPDX-License-Identifier: Apache-2.0
#include "files/written_stripes.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace tandem::files {

void WrittenStripes::take(std::uint64_t first, std::uint64_t count, std::uint64_t stripe_count) {
  if (first > stripe_count || count > stripe_count - first)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, count, " stripes from ", first, " on are not all of the set, which has ",
         stripe_count);
  if (count == 0) return;
  const std::uint64_t end = first + count;
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.lower_bound(first);
  std::uint64_t taken = end;  // the first of the range that is
  if (after != ranges_.end()) taken = std::min(taken, after->first);
  if (first < digested_count_ || (after != ranges_.begin() && std::prev(after)->second.end > first)) taken = first;
  if (taken < end)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, count, " stripes from ", first, " on: stripe ", taken,
         " was written before, or is being written");
  ranges_.emplace_hint(after, first, Range{end});
}

void WrittenStripes::give_back(std::uint64_t first) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(first);
}

void WrittenStripes::add(std::uint64_t first, std::vector<Hash128> hashes) {
  const std::lock_guard lock(mutex_);
  auto range = ranges_.find(first);
  if (range == ranges_.end()) return;  // it was empty
  range->second.written = true;
  range->second.hashes = std::move(hashes);
  if (range != ranges_.begin()) {
    if (const auto before = std::prev(range);
        before->second.written && !before->second.is_handed_over && before->second.end == first) {
      before->second.hashes.insert(before->second.hashes.end(), range->second.hashes.begin(),
                                   range->second.hashes.end());
      before->second.end = range->second.end;
      ranges_.erase(range);
    }
  }
  if (!leads_) return;
  for (range = ranges_.begin(); range != ranges_.end() && range->first == digested_count_ && range->second.written;
       range = ranges_.erase(range)) {
    digest_.add(range->second.hashes);
    digested_count_ = range->second.end;
  }
}

void WrittenStripes::check_complete(std::uint64_t stripe_count) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t written = digested_count_;
  for (const auto &[first, range] : ranges_)
    if (range.written) written += range.end - first;
  if (written != stripe_count)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, stripe_count - written, " of ", stripe_count,
         " stripes are not written, the first of them is ", digested_count_);
}

Hash128 WrittenStripes::digest(std::uint64_t content_bytes) const {
  const std::lock_guard lock(mutex_);
  return digest_.value(content_bytes);
}

void WrittenStripes::hand_over(const Team &team, std::uint64_t stripe_count) {
  if (team.is_alone()) return;
  const auto tell = [this](Words &words) {
    if (leads_) return;
    words.put(std::ranges::count_if(ranges_, [](const auto &each) { return !each.second.is_handed_over; }));
    for (const auto &[first, range] : ranges_) {
      if (range.is_handed_over) continue;
      words.put(first);
      words.put(range.end - first);
      words.put(range.hashes);
    }
  };
  team.gather(tell, [&](std::uint32_t process, Words &theirs) {
    for (std::uint64_t left = process != 0 ? theirs.number() : 0; left != 0; --left) {
      const std::uint64_t first = theirs.number();
      take(first, theirs.number(), stripe_count);
      add(first, theirs.hashes());
    }
  });
  if (leads_) return;
  for (auto &[first, range] : ranges_) {
    range.is_handed_over = true;
    range.hashes = {};
  }
}

}  // namespace tandem::files
