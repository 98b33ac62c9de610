// SPDX-License-Identifier: Apache-2.0
#include "mpi/cells.hpp"

#include <algorithm>
#include <cstring>

namespace tandem::mpi {

template <class Body>
void FileRow::each_part(std::uint64_t offset, std::size_t count, Body body) const {
  std::uint64_t begins = 0;
  const std::uint64_t end = offset + count;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const std::uint64_t ends = begins + files_[file].bytes;
    const std::uint64_t from = std::max(offset, begins), to = std::min(end, ends);
    if (from < to)
      body(file, from - begins, static_cast<std::size_t>(from - offset), static_cast<std::size_t>(to - from));
    begins = ends;
  }
}

void FileRow::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  each_part(offset, bytes.size(), [&](std::size_t file, std::uint64_t at, std::size_t begin, std::size_t count) {
    if (!read_at(descriptor(file), files_[file].path, bytes.subspan(begin, count), at))
      fail(TANDEM_ERROR_IO, files_[file].path, " changed: it had ", files_[file].bytes, " bytes");
    done = begin + count;
  });
  if (done < bytes.size()) std::memset(bytes.data() + done, 0, bytes.size() - done);
}

void FileRow::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  each_part(offset, bytes.size(), [&](std::size_t file, std::uint64_t at, std::size_t begin, std::size_t count) {
    write_at(descriptor(file), files_[file].path, bytes.subspan(begin, count), at);
  });
}

Cells::Cells(const Layout &layout, std::uint32_t member, std::uint64_t segment_bytes, std::uint64_t header_bytes)
    : layout_(layout),
      member_(member),
      segment_bytes_(segment_bytes),
      header_bytes_(header_bytes),
      hashing_(layout.size()) {}

void Cells::read(std::uint32_t stripe, std::uint64_t offset, std::span<std::byte> bytes) {
  if (layout_.has_parity(member_, stripe)) {
    const std::uint64_t at = header_bytes_ + layout_.parity_of(member_, stripe) * segment_bytes_ + offset;
    if (!read_at(parity, parity_path, bytes, at)) fail(TANDEM_ERROR_IO, parity_path, " is truncated");
  } else {
    data.read(layout_.segment_of(member_, stripe) * segment_bytes_ + offset, bytes);
  }
  read_bytes_ += bytes.size();
  hash(stripe, offset, bytes);
}

void Cells::write(std::uint32_t stripe, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (layout_.has_parity(member_, stripe)) {
    write_at(parity, parity_path, bytes, header_bytes_ + layout_.parity_of(member_, stripe) * segment_bytes_ + offset);
  } else {
    data.write(layout_.segment_of(member_, stripe) * segment_bytes_ + offset, bytes);
  }
  written_bytes_ += bytes.size();
  hash(stripe, offset, bytes);
}

void Cells::hash(std::uint32_t stripe, std::uint64_t offset, std::span<const std::byte> bytes) {
  Hashing &hashing = hashing_[stripe];
  if (offset == 0) {
    hashing.hasher.emplace();
    hashing.done_bytes = 0;
  }
  if (!hashing.hasher || hashing.done_bytes != offset) return;  // not from the beginning on
  hashing.hasher->update(bytes.data(), bytes.size());
  hashing.done_bytes += bytes.size();
}

std::vector<Hash> Cells::hashes() const {
  std::vector<Hash> all(hashing_.size(), Hash{});
  for (std::size_t stripe = 0; stripe < all.size(); ++stripe)
    if (hashing_[stripe].hasher && hashing_[stripe].done_bytes == segment_bytes_)
      all[stripe] = base::printed_order(hashing_[stripe].hasher->value());
  return all;
}

}  // namespace tandem::mpi
