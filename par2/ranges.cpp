// SPDX-License-Identifier: Apache-2.0
#include "par2/ranges.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/descriptor.hpp"
#include "par2/crc.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

// Of a range, that is read at a time: 32 of them fit into the second cache. Their beginnings lie in different sets of
// the first one.
constexpr std::size_t kPiece = 32768, kStride = kPiece + 64;

}  // namespace

void sum_together(std::span<Range> ranges, bool with_crc, const Progressed &progressed) {
  struct Buffer {
    alignas(64) std::byte bytes[kMaxMd5Streams * kStride];
  };
  static thread_local std::unique_ptr<Buffer> buffer;
  if (!buffer) buffer = std::make_unique_for_overwrite<Buffer>();
  std::vector<base::Descriptor> opened;
  std::vector<int> descriptors;
  std::vector<Md5> streams(ranges.size());
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (i == 0 || ranges[i].path != ranges[i - 1].path) opened.push_back(open_regular(*ranges[i].path));
    descriptors.push_back(opened.back().get());
    ranges[i].is_readable = opened.back() || ranges[i].bytes == 0;
    ranges[i].sum.crc = 0;
    longest = std::max(longest, ranges[i].bytes + ranges[i].zeros);
  }
  std::vector<Md5Part> parts;
  for (std::uint64_t at = 0; at < longest; at += kPiece) {
    parts.clear();
    std::uint64_t read_bytes = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      Range &range = ranges[i];
      if (!range.is_readable || at >= range.bytes + range.zeros) continue;
      std::byte *const piece = buffer->bytes + i * kStride;
      const std::size_t count = std::min<std::uint64_t>(kPiece, range.bytes + range.zeros - at);
      const std::size_t stored = at < range.bytes ? std::min<std::uint64_t>(count, range.bytes - at) : 0;
      if (stored != 0 &&
          base::read_at(descriptors[i], piece, stored, range.offset + at) != static_cast<std::int64_t>(stored)) {
        range.is_readable = false;
        continue;
      }
      read_bytes += stored;
      std::memset(piece + stored, 0, count - stored);
      if (with_crc) range.sum.crc = crc32(range.sum.crc, piece, count);
      parts.push_back({&streams[i], piece, count});
    }
    Md5Streams::update(parts);
    if (progressed) progressed(read_bytes);
  }
  std::vector<Md5 *> all;
  for (Md5 &stream : streams) all.push_back(&stream);
  const std::vector<Digest> digests = Md5Streams::finish(all);
  for (std::size_t i = 0; i < ranges.size(); ++i) ranges[i].sum.md5 = digests[i];
}

void sum_ranges(std::span<Range> ranges, bool with_crc, base::TaskPool &pool, const Progressed &progressed) {
  pool.run((ranges.size() + kMaxMd5Streams - 1) / kMaxMd5Streams, [&](std::size_t i) {
    const std::size_t first = i * kMaxMd5Streams;
    sum_together(ranges.subspan(first, std::min<std::size_t>(kMaxMd5Streams, ranges.size() - first)), with_crc,
                 progressed);
  });
}

}  // namespace tandem::par2
