// SPDX-License-Identifier: Apache-2.0
#include "par2/ranges.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/descriptor.hpp"
#include "base/rounding.hpp"
#include "par2/crc.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

// Bytes of a range that are read at a time: 32 such pieces fit into the second cache. Their beginnings lie in different
// sets of the first one.
constexpr std::size_t kPiece = 32768, kStride = kPiece + 64;

// Descriptors that all calls of this process hold beside one for each thread: half of what the process may open.
class SpareDescriptors {
 public:
  explicit SpareDescriptors(std::size_t wanted) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::size_t taken = taken_;
    do {
      count_ = std::min<std::size_t>(wanted, std::max<std::size_t>(limit.rlim_cur / 2, taken) - taken);
    } while (!taken_.compare_exchange_weak(taken, taken + count_));
  }
  ~SpareDescriptors() { taken_ -= count_; }
  SpareDescriptors(const SpareDescriptors &) = delete;
  SpareDescriptors &operator=(const SpareDescriptors &) = delete;
  std::size_t count() const { return count_; }

 private:
  static inline std::atomic<std::size_t> taken_{0};
  std::size_t count_;
};

bool begins_file(std::span<const Range> ranges, std::size_t i) {
  return i == 0 || ranges[i].path != ranges[i - 1].path;
}

// Holds all files of the ranges open.
void sum_open(std::span<Range> ranges, bool with_crc, const Progressed &progressed) {
  std::vector<base::Descriptor> opened;
  std::vector<int> descriptors;
  int error = 0;  // of the last file
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (begins_file(ranges, i)) {
      opened.push_back(open_regular(*ranges[i].path));
      error = opened.back() ? 0 : errno;
    }
    descriptors.push_back(opened.back().get());
    ranges[i].error = ranges[i].bytes == 0 ? 0 : error;
  }
  sum_read(ranges, with_crc, progressed, [&](std::size_t i, std::byte *into, std::size_t count, std::uint64_t at) {
    return base::read_at(descriptors[i], into, count, ranges[i].offset + at);
  });
}

}  // namespace

void sum_read(std::span<Range> ranges, bool with_crc, const Progressed &progressed, const ReadRange &read) {
  struct Buffer {
    alignas(64) std::byte bytes[kMaxMd5Streams * kStride];
  };
  static thread_local std::unique_ptr<Buffer> buffer;
  if (!buffer) buffer = std::make_unique_for_overwrite<Buffer>();
  std::vector<Md5> streams(ranges.size());
  std::uint64_t longest = 0;
  for (Range &range : ranges) {
    range.sum.crc = 0;
    longest = std::max(longest, range.bytes + range.zeros);
  }
  std::vector<Md5Part> parts;
  for (std::uint64_t at = 0; at < longest; at += kPiece) {
    parts.clear();
    std::uint64_t read_bytes = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      Range &range = ranges[i];
      if (range.error != 0 || at >= range.bytes + range.zeros) continue;
      std::byte *const piece = buffer->bytes + i * kStride;
      const std::size_t count = std::min<std::uint64_t>(kPiece, range.bytes + range.zeros - at);
      const std::size_t stored = at < range.bytes ? std::min<std::uint64_t>(count, range.bytes - at) : 0;
      if (stored != 0) {
        const std::int64_t got = read(i, piece, stored, at);
        if (got != static_cast<std::int64_t>(stored)) {
          range.error = got < 0 ? errno : EIO;
          continue;
        }
      }
      read_bytes += stored;
      std::memset(piece + stored, 0, count - stored);
      if (with_crc) range.sum.crc = crc32(range.sum.crc, piece, count);
      parts.push_back({&streams[i], piece, count});
    }
    Md5Streams::update(parts);
    if (progressed) progressed(read_bytes);
  }
  const std::vector<Digest> digests = Md5Streams::finish(streams);
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i].sum.md5 = digests[i];
}

void sum_together(std::span<Range> ranges, bool with_crc, const Progressed &progressed) {
  if (progressed) progressed(0);
  std::size_t files = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) files += begins_file(ranges, i);
  const SpareDescriptors spare(std::max<std::size_t>(files, 1) - 1);
  while (!ranges.empty()) {
    std::size_t count = 0;
    for (files = 0; count < ranges.size(); ++count)
      if (begins_file(ranges, count) && ++files > 1 + spare.count()) break;
    sum_open(ranges.first(count), with_crc, progressed);
    ranges = ranges.subspan(count);
  }
}

void run_groups(std::size_t count, base::Crew &crew,
                const std::function<void(std::size_t first, std::size_t end)> &task) {
  constexpr std::size_t kGroup = kMaxMd5Streams;
  crew.run(tandem::base::divide_up(count, kGroup),
           [&](std::size_t i) { task(i * kGroup, std::min((i + 1) * kGroup, count)); });
}

void sum_ranges(std::span<Range> ranges, bool with_crc, base::Crew &crew, const Progressed &progressed) {
  run_groups(ranges.size(), crew, [&](std::size_t first, std::size_t end) {
    sum_together(ranges.subspan(first, end - first), with_crc, progressed);
  });
}

}  // namespace tandem::par2
