// SPDX-License-Identifier: Apache-2.0
#include "par2/packet_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>

#include "base/bytes.hpp"
#include "par2/columns.hpp"
#include "par2/crc.hpp"
#include "par2/tree.hpp"

namespace tandem::par2 {
namespace {

constexpr std::size_t kField = 65536;

void write(const base::PendingFile &file, const void *data, std::size_t count, std::uint64_t offset) {
  if (!base::write_at(file.descriptor(), static_cast<const std::byte *>(data), count, offset))
    fail_io("write", file.path(), errno);
}

}  // namespace

std::string volume_name(const std::string &base, const Volume &volume, std::size_t first_digits,
                        std::size_t count_digits) {
  return text(base, ".vol", base::digits(volume.first, 10, first_digits), "+",
              base::digits(volume.count, 10, count_digits), ".par2");
}

Bytes own_creator_body() { return creator_body(text("Tandem ", tandem_version_string())); }

double count_of(double percent, double slice_count) noexcept {
  return percent == 0 || slice_count == 0 ? 0 : std::max(1.0, std::floor((slice_count * percent + 50) / 100));
}

std::uint64_t PacketFiles::copies_of(const Volume &volume) const {
  return std::max<std::uint64_t>({1u, static_cast<std::uint64_t>(std::bit_width(volume.count)), least_copies_});
}

std::uint64_t PacketFiles::bytes_of(const Volume &volume) const {
  return volume.count * packet_bytes_ + copies_of(volume) * critical_bytes_;
}

std::uint64_t PacketFiles::bytes() const {
  std::uint64_t sum = 0;
  for (const Each &each : files_) sum += bytes_of(each.volume);
  return sum;
}

// Before a copy of the critical packets. The copies are spread evenly, and the last one is at the end. Of
// least_copies_, the first one is at the beginning.
std::uint64_t PacketFiles::packets_before(const Volume &volume, std::uint64_t copy) const {
  if (least_copies_ > 1) return copy * volume.count / (copies_of(volume) - 1);
  return tandem::base::divide_up((copy + 1) * volume.count, copies_of(volume));
}

std::uint64_t PacketFiles::packet_offset(const Volume &volume, std::uint32_t index) const {
  std::uint64_t copies_before = 0;
  while (copies_before < copies_of(volume) && packets_before(volume, copies_before) <= index) ++copies_before;
  return index * packet_bytes_ + copies_before * critical_bytes_;
}

void PacketFiles::make() {
  for (Each &each : files_) {
    each.temporary = temporary_name(each.name);
    each.file = base::PendingFile(folder_, each.temporary, 01000);
    if (!base::set_length(each.file.descriptor(), bytes_of(each.volume))) fail_io("write", each.file.path(), errno);
    if (&each != &files_.front()) each.file.close();  // a set may have more files than the process may have open
    for (std::uint32_t i = 0; i < each.volume.count; ++i)
      recovery_.push_back({&each, each.volume.first + i, packet_offset(each.volume, i)});
  }
  std::ranges::sort(recovery_, {}, &Recovery::exponent);
}

std::vector<SliceSum> PacketFiles::code(tandem_context *context, std::span<const Place> slices,
                                        std::uint64_t memory_bytes, base::Crew &crew, base::Meter &meter) {
  const std::size_t k = slices.size();
  const std::uint64_t slice_bytes = packet_bytes_ - kRecoveryPrefixBytes;
  std::vector<SliceSum> sums(k);
  if (k == 0) return sums;
  const std::uint64_t memory = memory_bytes != 0 ? memory_bytes : kDefaultMemory;
  std::vector<Md5> slice_md5s(k), packet_md5s(recovery_.size());
  for (std::size_t i = 0; i < recovery_.size(); ++i) {
    const RecoveryPrefix prefix = recovery_prefix(set_id_, recovery_[i].exponent, slice_bytes);
    packet_md5s[i].update(prefix.bytes + kHashedFrom, sizeof prefix.bytes - kHashedFrom);
  }
  bool is_first = true;
  const auto read = [&](const Column &column, std::size_t first, std::size_t end) {
    Opened opened;
    std::vector<Md5Part> parts;
    for (std::size_t i = first; i < end; ++i) {
      if (!read_place(slices[i], column.offset, column.inputs[i], column.bytes, opened))
        fail(TANDEM_ERROR_IO, *slices[i].path, " has become shorter");
      if (!is_first) continue;
      sums[i].crc = crc32(sums[i].crc, column.inputs[i], column.bytes);
      parts.push_back({&slice_md5s[i], column.inputs[i], column.bytes});
      meter.done(std::clamp(slices[i].bytes, column.offset, column.offset + column.bytes) - column.offset);
    }
    Md5Streams::update(parts);
  };
  // One codec computes exponents from the first to the last one. At most as many are thrown away as are wanted.
  for (std::size_t begin = 0; is_first || begin != recovery_.size(); is_first = false) {
    std::size_t after = std::min(begin + 1, recovery_.size());
    const std::uint32_t first_exponent = after == begin ? 0 : recovery_[begin].exponent;
    const auto window_to = [&](std::size_t last) { return recovery_[last].exponent - first_exponent + 1; };
    while (after != recovery_.size() && window_to(after) <= 2 * (after - begin + 1) && k + window_to(after) <= kField)
      ++after;
    const std::uint32_t m = after == begin ? 0 : window_to(after - 1);
    if (!is_first) meter.add_total(k * slice_bytes);
    CodecOwner codec(nullptr, tandem_codec_destroy);
    if (m != 0) codec = make_codec(false, k, first_exponent, m);
    const auto encode = [&](const Column &column) {
      check(tandem_encode(context, codec.get(), column.inputs.data(), column.outputs.data(), column.bytes));
    };
    const auto write_column = [&](const Column &column, std::size_t first, std::size_t end) {
      std::vector<Md5Part> parts;
      const auto from = std::ranges::lower_bound(recovery_, first_exponent + first, {}, &Recovery::exponent);
      const auto to = std::ranges::lower_bound(recovery_, first_exponent + end, {}, &Recovery::exponent);
      write_recovery({from, to}, [&](const base::PendingFile &file, const Recovery &each) {
        const void *const bytes = column.outputs[each.exponent - first_exponent];
        parts.push_back({&packet_md5s[static_cast<std::size_t>(&each - recovery_.data())], bytes, column.bytes});
        write(file, bytes, column.bytes, each.offset + kRecoveryPrefixBytes + column.offset);
      });
      Md5Streams::update(parts);
      meter.done(column.bytes * parts.size());
    };
    code_columns(k, m, slice_bytes, memory, crew, read, encode, write_column);
    begin = after;
  }
  const std::vector<Digest> slice_digests = Md5Streams::finish(slice_md5s), digests = Md5Streams::finish(packet_md5s);
  for (std::size_t i = 0; i < k; ++i) sums[i].md5 = slice_digests[i];
  write_recovery(recovery_, [&](const base::PendingFile &file, const Recovery &each) {
    RecoveryPrefix prefix = recovery_prefix(set_id_, each.exponent, slice_bytes);
    base::store(prefix.bytes + 16, digests[static_cast<std::size_t>(&each - recovery_.data())]);
    write(file, prefix.bytes, sizeof prefix.bytes, each.offset);
  });
  return sums;
}

void PacketFiles::write_recovery(std::span<const Recovery> some,
                                 const std::function<void(const base::PendingFile &, const Recovery &)> &write) const {
  base::PendingFile file;
  const Each *open_file = nullptr;
  for (const Recovery &each : some) {
    if (each.file != open_file) file = open(*each.file);
    open_file = each.file;
    write(file, each);
  }
}

void PacketFiles::finish(std::span<const std::byte> critical, bool replaces, bool no_sync) {
  for (const Each &each : files_) {
    base::PendingFile file = open(each);
    for (std::uint64_t copy = 0; copy < copies_of(each.volume); ++copy)
      write(file, critical.data(), critical.size(),
            packets_before(each.volume, copy) * packet_bytes_ + copy * critical_bytes_);
    if (each.remade) keep_status(file.descriptor(), *each.remade, file.path());
    file.finish(no_sync);
  }
  // The first file comes last: if it exists, the set is complete.
  std::size_t i = files_.size();
  try {
    while (i != 0) {
      Each &each = files_[i - 1];
      const auto now = each.remade ? Entry{folder_, each.name}.status() : std::nullopt;
      if (each.remade && !(now && base::unchanged(*each.remade, *now)))
        fail(TANDEM_ERROR_DAMAGED, folder_->path_of(each.name), " has changed since it was verified");
      each.file.rename(each.name, replaces || each.remade, true);
      --i;
      if (i <= 1 && !no_sync) folder_->sync();
    }
  } catch (...) {
    // Older files that are replaced may be lost already: the new ones stay.
    for (; !replaces && i != files_.size(); ++i)
      if (!files_[i].remade) folder_->remove(files_[i].name);
    throw;
  }
}

}  // namespace tandem::par2
