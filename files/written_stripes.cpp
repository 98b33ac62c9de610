// SPDX-License-Identifier: Apache-2.0
#include "files/written_stripes.hpp"

#include <algorithm>
#include <iterator>

#include "base/text.hpp"
#include "files/error.hpp"

namespace tandem::files {

void WrittenStripes::take(std::uint64_t first, std::uint64_t count, std::uint64_t stripe_count) {
  if (first > stripe_count || count > stripe_count - first)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         base::text(count, " stripes from ", first, " on are not all of the set, which has ", stripe_count));
  if (count == 0) return;
  const std::uint64_t end = first + count;
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.lower_bound(first);
  std::uint64_t taken = end;  // the first of the range that is
  if (after != ranges_.end()) taken = std::min(taken, after->first);
  if (first < digested_count_ || (after != ranges_.begin() && std::prev(after)->second.end > first)) taken = first;
  if (taken < end)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         base::text(count, " stripes from ", first, " on: stripe ", taken, " was written before, or is being written"));
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
    if (const auto before = std::prev(range); before->second.written && before->second.end == first) {
      before->second.hashes.insert(before->second.hashes.end(), range->second.hashes.begin(),
                                   range->second.hashes.end());
      before->second.end = range->second.end;
      ranges_.erase(range);
    }
  }
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
    fail(TANDEM_ERROR_INVALID_ARGUMENT, base::text(stripe_count - written, " of ", stripe_count,
                                                   " stripes are not written, the first of them is ", digested_count_));
}

Hash128 WrittenStripes::digest(std::uint64_t content_bytes) const {
  const std::lock_guard lock(mutex_);
  return digest_.value(content_bytes);
}

void WrittenStripes::add_told(const SetHeader &header, std::uint64_t first, std::uint64_t count,
                              std::span<const std::byte> bytes) {
  take(first, count, header.stripe_count());
  if (count == 0) return;
  try {
    const std::uint64_t block_count = count * header.k;
    if (bytes.size() != block_count * kHashBytes)
      fail(TANDEM_ERROR_INVALID_ARGUMENT,
           base::text(count, " stripes of ", header.k, " data blocks have ", block_count * kHashBytes,
                      " bytes of hashes, ", bytes.size(), " given"));
    std::vector<Hash128> hashes(block_count);
    for (std::size_t i = 0; i < block_count; ++i) hashes[i] = read_check(bytes.data() + i * kHashBytes);
    add(first, std::move(hashes));
  } catch (...) {
    give_back(first);
    throw;
  }
}

void check_digest(const SetHeader &header, const Hash128 &digest) {
  if (digest == header.digest) return;
  fail(TANDEM_ERROR_DAMAGED,
       base::text("the digest of the ", header.content_bytes, " decoded bytes is ", hexadecimal(printed_order(digest)),
                  ", the set's is ", hexadecimal(printed_order(header.digest))));
}

}  // namespace tandem::files
