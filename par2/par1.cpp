// SPDX-License-Identifier: Apache-2.0
// Sets of PAR 1.0 ("Parity Volume Set Specification 1.0", 2001). Each volume has the list of all files. Volume 0 has
// nothing else. Byte j of another volume v is the sum of byte j of file i times i^(v-1), over GF(2^8), for i = 1, 2,
// ...: so each file is one slice, as long as the largest file.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/bytes.hpp"
#include "par2/files.hpp"
#include "par2/set.hpp"

namespace tandem::par2 {
namespace {

constexpr char kPar1Magic[] = {'P', 'A', 'R', 0, 0, 0, 0, 0, 0, 0, 1, 0};  // and version 1.0
constexpr std::uint64_t kVolumeHeaderBytes = 96, kEntryBytes = 56;
constexpr std::uint64_t kPar1Shards = 256;  // most slices and volumes together

struct Par1Volume {
  Digest md5, set_id;
  std::uint64_t number, file_count, list_offset, list_bytes, data_offset, data_bytes;
};

std::optional<Par1Volume> parse_volume(const Bytes &header, std::uint64_t file_bytes) {
  if (header.size() < kVolumeHeaderBytes || std::memcmp(header.data(), kPar1Magic, sizeof kPar1Magic) != 0) return {};
  const auto number = [&](std::size_t at) { return load<std::uint64_t>(header.data() + at); };
  const Par1Volume volume{load<Digest>(header.data() + 16),
                          load<Digest>(header.data() + 32),
                          number(48),
                          number(56),
                          number(64),
                          number(72),
                          number(80),
                          number(88)};
  const auto is_inside = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset >= kVolumeHeaderBytes && offset <= file_bytes && bytes <= file_bytes - offset;
  };
  if (volume.list_bytes > kMostCriticalBytes || !is_inside(volume.list_offset, volume.list_bytes)) return {};
  if (volume.number != 0 && !is_inside(volume.data_offset, volume.data_bytes)) return {};
  return volume;
}

void add_files(Set &set, std::span<const std::byte> list, std::uint64_t count) {
  FileNames names;
  std::vector<File> others;
  for (; count != 0; --count) {
    const std::uint64_t bytes = list.size() > kEntryBytes ? load<std::uint64_t>(list.data()) : 0;
    if (bytes <= kEntryBytes || bytes > list.size())
      fail(TANDEM_ERROR_UNSUPPORTED, "the list of files ends before ", count, " of them");
    File file{};
    file.is_recoverable = (load<std::uint64_t>(list.data() + 8) & 1) != 0;
    file.bytes = load<std::uint64_t>(list.data() + 16);
    file.md5 = load<Digest>(list.data() + 24);
    file.md5_of_beginning = load<Digest>(list.data() + 40);
    file.name = utf8_of(list.subspan(kEntryBytes, bytes - kEntryBytes));
    list = list.subspan(bytes);
    const std::string name = file.name;
    const int error = name.find_first_of("/\\") == std::string::npos ? set_name(file, name, names) : EPERM;
    if (error != 0 || file.is_folder)
      fail(TANDEM_ERROR_UNSUPPORTED, "the set has a file \"", name,
           "\", a name that cannot be used: ", base::error_text(error));
    if (file.bytes > kMostSliceBytes)
      fail(TANDEM_ERROR_UNSUPPORTED, "the set has a file of ", file.bytes, " bytes; at most ", kMostSliceBytes);
    if (!file.is_recoverable) {
      others.push_back(std::move(file));
      continue;
    }
    file.first_slice = set.slice_count++;
    file.slice_count = 1;
    set.slice_bytes = std::max(set.slice_bytes, file.bytes);
    set.files.push_back(std::move(file));
  }
  if (set.slice_count >= kPar1Shards || others.size() > kMostFiles)
    fail(TANDEM_ERROR_TOO_LARGE, "the set has ", set.slice_count, " files with recovery data and ", others.size(),
         " others; at most ", kPar1Shards - 1, " and ", kMostFiles);
  std::ranges::move(others, std::back_inserter(set.files));
}

Bytes read_part(const base::Descriptor &file, const std::string &path, std::uint64_t bytes, std::uint64_t offset) {
  Bytes part(bytes);
  part.resize(read_past_errors(file, path, part.data(), bytes, offset));
  return part;
}

}  // namespace

Set read_par1_set(const std::vector<std::string> &paths, base::Crew &crew, base::Meter &meter) {
  Set set;
  set.is_par1 = true;
  set.slice_bytes = 1;
  std::vector<Par1Volume> volumes;
  std::vector<Range> ranges;
  std::vector<std::uint32_t> numbers;  // of packet files
  for (const std::string &path : paths) {
    const base::Descriptor file = open_regular(path);
    if (!file && !is_absent(errno)) fail_io("open", path, errno);
    struct stat status {};
    if (file && fstat(file.get(), &status) != 0) fail_io("look at", path, errno);
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    set.packet_files.push_back({path, bytes});
    const auto volume = file ? parse_volume(read_part(file, path, kVolumeHeaderBytes, 0), bytes) : std::nullopt;
    if (!volume) continue;
    numbers.push_back(static_cast<std::uint32_t>(set.packet_files.size() - 1));
    volumes.push_back(*volume);
    ranges.push_back({&path, kHashedFrom, bytes - kHashedFrom});
    meter.add_total(ranges.back().bytes);
  }
  sum_ranges(ranges, false, crew, meter.counter());
  const Par1Volume *first = nullptr;
  std::map<std::uint32_t, RecoverySlice> recovery;
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    const Par1Volume &volume = volumes[i];
    if (is_unreadable(ranges[i].error)) fail_io("read", *ranges[i].path, ranges[i].error);
    if (ranges[i].error != 0 || ranges[i].sum.md5 != volume.md5) continue;
    PacketFile &file = set.packet_files[numbers[i]];
    file.used_bytes = file.bytes;
    if (first == nullptr) {
      first = &volume;
      set.id = volume.set_id;
      add_files(set, read_part(open_regular(file.path), file.path, volume.list_bytes, volume.list_offset),
                volume.file_count);
    }
    file.packet_count = volume.set_id == set.id;
    if (volume.set_id != set.id || volume.number == 0 || volume.number > kPar1Shards - set.slice_count ||
        volume.data_bytes < set.slice_bytes)
      continue;
    file.recovery_count = 1;
    const auto exponent = static_cast<std::uint32_t>(volume.number - 1);
    recovery.emplace(exponent, RecoverySlice{exponent, numbers[i], volume.data_offset});
  }
  if (first == nullptr) fail(TANDEM_ERROR_DAMAGED, "no file of the set is intact");
  for (const auto &[exponent, slice] : recovery) set.recovery.push_back(slice);
  return set;
}

}  // namespace tandem::par2
