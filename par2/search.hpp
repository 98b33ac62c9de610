// SPDX-License-Identifier: Apache-2.0
// Finds slices of a set in files, at any offset.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "par2/crc.hpp"
#include "par2/set.hpp"

namespace tandem::par2 {

// The different contents of slices. Equal slices have one content: any copy gives them all.
struct Content {
  std::optional<SliceSum> sum;  // none: its packet is lost
  std::uint64_t bytes;          // of the shortest slice with this content; zeros follow up to the size of a slice
  std::optional<Digest> whole;  // of a file that is_mostly_zeros: its MD5
};

struct Match {
  std::uint32_t content;
  std::uint64_t offset, bytes;
};

// A part of a file that may hold slices.
struct Region {
  const std::string *path;
  std::uint64_t begin, end;
  bool ends_file;  // zeros may follow
};

class Search {
 public:
  explicit Search(const Set &set);

  const std::vector<Content> &contents() const { return contents_; }
  std::uint32_t content_of(std::uint64_t slice) const { return content_of_slice_[slice]; }

  // Slices of the region that begin in first .. last - 1, and short slices that follow the last of them. Counts each of
  // these bytes once. Checksums of a hostile set match often by their CRC alone: a scan follows few of such matches, so
  // that its time is bounded. Any number of threads may call it.
  std::vector<Match> scan(const Region &region, std::uint64_t first, std::uint64_t last,
                          const Progressed &progressed) const;

 private:
  class Scan;
  struct Key {
    std::uint32_t crc;  // whole slices: linear; short ones: of their bytes alone
    std::uint32_t content;
    std::uint64_t bytes;
  };
  bool may_have(std::uint32_t linear) const { return filter_[linear & filter_mask_]; }
  bool has(std::uint32_t linear) const;
  // Whether `count` zeros may be hashed: not many more than the bytes that are searched.
  bool take_zeros(std::uint64_t count) const;
  // keys: whole slices, or short ones of one length.
  std::optional<std::uint32_t> find(std::span<const Key> keys, std::uint32_t crc, const Digest &md5) const;

  std::uint64_t slice_bytes_;
  RollingCrc rolling_;
  std::vector<Content> contents_;
  std::vector<std::uint32_t> content_of_slice_;
  std::vector<Key> wholes_;  // by crc, then MD5
  std::vector<Key> shorts_;  // by bytes, then crc, then MD5
  mutable std::atomic<std::int64_t> zeros_left_;
  std::vector<bool> filter_;
  std::uint32_t filter_mask_;
};

}  // namespace tandem::par2
