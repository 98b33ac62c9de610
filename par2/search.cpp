// SPDX-License-Identifier: Apache-2.0
#include "par2/search.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>

#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

constexpr std::size_t kReadBytes = 65536;
constexpr std::uint64_t kCrcOrder = 0xffffffff;  // so many bytes of zeros change no CRC
constexpr unsigned kMostMisses = 4;              // of one CRC in a scan: then it is ignored
constexpr std::uint64_t kMostMissesInAll = 64;   // misses of all CRCs in a scan, beside accidents
constexpr std::int64_t kMostZeros = 256 << 20;   // that a search hashes, and four times the bytes that it reads

}  // namespace

Search::Search(const Set &set) : slice_bytes_(set.slice_bytes), rolling_(set.slice_bytes), zeros_left_(kMostZeros) {
  std::map<std::tuple<Digest, std::uint32_t, bool>, std::uint32_t> known;
  for (const File &file : set.files) {
    const bool is_whole = file.is_mostly_zeros(slice_bytes_);
    for (std::uint64_t i = 0; i < file.slice_count; ++i) {
      const std::uint64_t bytes = file.bytes_of_slice(i, slice_bytes_);
      std::uint32_t content = static_cast<std::uint32_t>(contents_.size());
      if (!file.sums.empty())
        content =
            known.try_emplace({file.md5_of_slice(i, slice_bytes_), file.sums[i].crc, is_whole}, content).first->second;
      if (content == contents_.size())
        contents_.push_back({file.sums.empty() ? std::nullopt : std::optional(file.sums[i]), bytes,
                             is_whole ? std::optional(file.md5) : std::nullopt});
      contents_[content].bytes = std::min(contents_[content].bytes, bytes);
      content_of_slice_.push_back(content);
    }
  }
  const std::size_t bits = std::bit_ceil(16 * contents_.size() + 1);
  filter_.resize(bits);
  filter_mask_ = static_cast<std::uint32_t>(bits - 1);
  for (std::uint32_t i = 0; i < contents_.size(); ++i) {
    const Content &content = contents_[i];
    if (!content.sum) continue;
    const std::uint32_t linear = rolling_.linear(content.sum->crc);
    if (!content.whole) {
      wholes_.push_back({linear, i, slice_bytes_});
      filter_[linear & filter_mask_] = true;
    }
    const std::uint64_t zeros = slice_bytes_ - content.bytes;
    if (zeros != 0) shorts_.push_back({crc32_zeros(content.sum->crc, kCrcOrder - zeros % kCrcOrder), i, content.bytes});
  }
  const auto order = [&](const Key &key) { return std::tuple(key.bytes, key.crc, contents_[key.content].sum->md5); };
  std::ranges::sort(wholes_, {}, order);
  std::ranges::sort(shorts_, {}, order);
}

bool Search::has(std::uint32_t linear) const {
  return may_have(linear) && std::ranges::binary_search(wholes_, linear, {}, &Key::crc);
}

std::optional<std::uint32_t> Search::find(std::span<const Key> keys, std::uint32_t crc, const Digest &md5) const {
  const auto sum_of = [&](const Key &key) { return std::pair(key.crc, contents_[key.content].sum->md5); };
  const auto key = std::ranges::lower_bound(keys, std::pair(crc, md5), {}, sum_of);
  if (key == keys.end() || sum_of(*key) != std::pair(crc, md5)) return {};
  return key->content;
}

bool Search::take_zeros(std::uint64_t count) const {
  const auto zeros = static_cast<std::int64_t>(count);
  if (zeros == 0 || zeros_left_.fetch_sub(zeros) >= zeros) return true;
  zeros_left_ += zeros;
  return false;
}

// It could be opened before: what it has is not known now.
static base::Descriptor open_to_search(const std::string &path) {
  base::Descriptor file = open_regular(path);
  if (!file && !is_absent(errno)) fail_io("open", path, errno);
  return file;
}

class Search::Scan {
 public:
  Scan(const Search &search, const Region &region, std::uint64_t last, const Progressed &progressed)
      : search_(search),
        region_(region),
        last_(last),
        progressed_(progressed),
        file_(open_to_search(*region.path)),
        tried_(search.shorts_.size()),
        entering_(kReadBytes),
        leaving_(kReadBytes) {}

  std::vector<Match> run(std::uint64_t first) {
    counted_ = first;
    // CRCs of 32 bits also match by accident.
    misses_left_ = kMostMissesInAll + 4 * (((last_ - first) >> 16) * search_.wholes_.size() >> 16);
    bool at_boundary = first == region_.begin;  // a slice may begin here, also a short one
    std::uint64_t at = first;
    while (file_ && at < last_ && fits(at)) {
      const std::uint64_t before = at;
      std::uint32_t linear = search_.rolling_.linear(crc_at(at));
      if (is_hit(linear)) at = take_run(at, linear);
      if (at == before && at_boundary) at = take_short(at);
      at_boundary = at != before;
      while (!at_boundary && roll_to_hit(at, linear)) {
        const std::uint64_t hit = at;
        at = take_run(at, linear);
        at_boundary = at != hit;
      }
      count_to(at);
      if (!at_boundary) break;
    }
    // The scan that begins at `last` does not know that a short slice may begin here.
    for (std::uint64_t before = 0; file_ && at_boundary && at >= last_ && at != before;) {
      before = at;
      at = take_short(at);
    }
    count_to(last_);
    return std::move(matches_);
  }

 private:
  bool fits(std::uint64_t at) const {
    return at < region_.end && (region_.ends_file || search_.slice_bytes_ <= region_.end - at);
  }
  Range window(std::uint64_t at) const {
    const std::uint64_t bytes = std::min(search_.slice_bytes_, region_.end - at);
    return {region_.path, at, bytes, search_.slice_bytes_ - bytes};
  }
  // Progress, each byte once.
  void count_to(std::uint64_t at) {
    at = std::min(at, last_);
    if (progressed_ && at > counted_) progressed_(at - counted_);
    counted_ = std::max(at, counted_);
  }
  bool is_hit(std::uint32_t linear) const {
    if (!search_.has(linear) || misses_left_ == 0) return false;
    const auto misses = misses_.find(linear);
    return misses == misses_.end() || misses->second < kMostMisses;
  }
  std::optional<std::uint32_t> find(std::span<const Key> keys, std::uint32_t crc, const Range &range) const {
    return range.error == 0 ? search_.find(keys, crc, range.sum.md5) : std::nullopt;
  }
  // keys: short slices that are as long as the range.
  std::optional<std::uint32_t> find_short(std::span<const Key> keys, std::uint32_t crc, Range range) const {
    bool all_whole = true;
    sum({&range, 1});
    for (auto key = std::ranges::lower_bound(keys, crc, {}, &Key::crc); key != keys.end() && key->crc == crc; ++key) {
      const Content &content = search_.contents_[key->content];
      if (range.error == 0 && content.whole == range.sum.md5) return key->content;
      all_whole = all_whole && content.whole;
    }
    range.zeros = search_.slice_bytes_ - range.bytes;
    if (all_whole || !search_.take_zeros(range.zeros)) return {};
    sum({&range, 1});
    return find(keys, crc, range);
  }
  void sum(std::span<Range> ranges) const {
    sum_together(ranges, true, [&](std::uint64_t) {
      if (progressed_) progressed_(0);
    });
  }
  // Zeros beyond the region.
  void read(std::vector<std::uint8_t> &into, std::uint64_t at, std::size_t count) {
    std::size_t stored = at < region_.end ? std::min<std::uint64_t>(count, region_.end - at) : 0;
    if (stored != 0)
      stored = read_past_errors(file_, *region_.path, reinterpret_cast<std::byte *>(into.data()), stored, at);
    if (progressed_) progressed_(0);
    std::memset(into.data() + stored, 0, count - stored);
  }
  std::uint32_t crc_at(std::uint64_t at) {
    const Range range = window(at);
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < range.bytes; done += kReadBytes) {
      const std::size_t count = std::min<std::uint64_t>(kReadBytes, range.bytes - done);
      read(entering_, at + done, count);
      crc = crc32(crc, entering_.data(), count);
    }
    return crc32_zeros(crc, range.zeros);
  }

  // The end of the slices that follow each other from here on. As long as they do, more are hashed together.
  std::uint64_t take_run(std::uint64_t at, std::uint32_t linear) {
    const std::uint64_t begin = at;
    for (std::size_t count = 4;; count = std::min<std::size_t>(2 * count, kMaxMd5Streams)) {
      std::vector<Range> ranges;
      for (std::uint64_t each = at; ranges.size() < count && each < last_ && fits(each); each += search_.slice_bytes_) {
        if (!search_.take_zeros(window(each).zeros)) break;
        ranges.push_back(window(each));
      }
      sum(ranges);
      for (const Range &range : ranges) {
        const auto content = find(search_.wholes_, search_.rolling_.linear(range.sum.crc), range);
        if (!content && at == begin) {
          ++misses_[linear];
          --misses_left_;
        }
        if (!content) return at;
        matches_.push_back({*content, range.offset, range.bytes});
        at += range.bytes;
      }
      if (ranges.size() < count) return at;
    }
  }

  // The end of the longest short slice that begins here; `at` if there is none. Very short ones match by accident.
  std::uint64_t take_short(std::uint64_t at) {
    std::uint32_t crc = 0;
    std::uint64_t done = 0;  // bytes in the CRC
    std::uint64_t end = at;
    for (std::span<const Key> left = search_.shorts_; !left.empty() && left[0].bytes <= region_.end - at;) {
      const std::uint64_t bytes = left[0].bytes;
      const auto longer = std::ranges::upper_bound(left, bytes, {}, &Key::bytes);
      const auto keys = left.first(static_cast<std::size_t>(longer - left.begin()));
      left = left.subspan(keys.size());
      while (done < bytes) {
        if (done % kReadBytes == 0) read(entering_, at + done, kReadBytes);
        const std::size_t count = std::min<std::uint64_t>(kReadBytes - done % kReadBytes, bytes - done);
        crc = crc32(crc, entering_.data() + done % kReadBytes, count);
        done += count;
      }
      const auto key = std::ranges::lower_bound(keys, crc, {}, &Key::crc);
      if (key == keys.end() || key->crc != crc || misses_left_ == 0) continue;
      const auto place = static_cast<std::size_t>(&*key - search_.shorts_.data());
      if (tried_[place] && repeats_left_ == 0) continue;
      repeats_left_ -= tried_[place];
      tried_[place] = true;
      const auto content = find_short(keys, crc, {region_.path, at, bytes});
      misses_left_ -= !content;
      if (!content) continue;
      matches_.push_back({*content, at, bytes});
      end = at + bytes;
    }
    return end;
  }

  // Moves the window to the next place where its CRC is that of a slice. False: there is none before the end.
  bool roll_to_hit(std::uint64_t &at, std::uint32_t &linear) {
    while (at + 1 < last_ && fits(at + 1)) {
      std::uint64_t count = std::min<std::uint64_t>(kReadBytes, last_ - 1 - at);
      if (!region_.ends_file) count = std::min(count, region_.end - search_.slice_bytes_ - at);
      read(leaving_, at, count);
      read(entering_, at + search_.slice_bytes_, count);
      for (std::size_t i = 0; i < count; ++i) {
        linear = search_.rolling_.roll(linear, entering_[i], leaving_[i]);
        if (search_.may_have(linear) && is_hit(linear)) {
          at += i + 1;
          return true;
        }
      }
      at += count;
      count_to(at);
    }
    return false;
  }

  const Search &search_;
  const Region &region_;
  const std::uint64_t last_;
  const Progressed &progressed_;
  base::Descriptor file_;
  std::uint64_t counted_ = 0;  // bytes before this are counted as progress
  std::uint64_t misses_left_ = 0;
  std::uint64_t repeats_left_ = 256;                    // of short contents, as in files of one byte
  std::unordered_map<std::uint32_t, unsigned> misses_;  // by CRC: its MD5 was another one
  std::vector<bool> tried_;                             // short contents, by the first key with the same bytes and CRC
  std::vector<std::uint8_t> entering_, leaving_;
  std::vector<Match> matches_;
};

std::vector<Match> Search::scan(const Region &region, std::uint64_t first, std::uint64_t last,
                                const Progressed &progressed) const {
  zeros_left_ += static_cast<std::int64_t>(4 * (last - first));
  return Scan(*this, region, last, progressed).run(first);
}

}  // namespace tandem::par2
