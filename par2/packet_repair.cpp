// SPDX-License-Identifier: Apache-2.0
#include "par2/packet_repair.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/folder.hpp"
#include "base/interval_set.hpp"
#include "par2/files.hpp"
#include "par2/packet_files.hpp"

namespace tandem::par2 {
namespace {

struct NameParts {
  std::optional<Volume> volume;  // none: "base.par2"
  std::size_t first_digits = 1, count_digits = 1;
};

// Of "base.par2" or "base.vol03+4.par2". Empty: another name.
std::optional<NameParts> parts_of(std::string_view name, std::string_view base) {
  constexpr std::string_view kVolume = ".vol";
  if (!is_packet_file_name(name) || base_of(name) != base) return {};
  const std::string_view middle = name.substr(base.size(), name.size() - base.size() - 5);
  if (middle.empty()) return NameParts();
  if (middle.size() <= kVolume.size()) return {};
  const char *const begin = middle.data() + kVolume.size(), *const end = middle.data() + middle.size();
  Volume volume;
  const auto sign = std::from_chars(begin, end, volume.first);
  if (sign.ec != std::errc() || sign.ptr == end || *sign.ptr != '+') return {};
  const auto last = std::from_chars(sign.ptr + 1, end, volume.count);
  if (last.ec != std::errc() || last.ptr != end || volume.first >= kExponents ||
      volume.count > kExponents - volume.first)
    return {};
  return NameParts{volume, static_cast<std::size_t>(sign.ptr - begin), static_cast<std::size_t>(end - sign.ptr - 1)};
}

// sums: of all slices, for files that have lost theirs.
Bytes critical_packets(const Set &set, std::span<const SliceSum> sums) {
  Bytes all;
  const auto add = [&](Kind kind, const Bytes &body) {
    const Bytes bytes = packet(kind, set.id, body);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  bool has_creator = false;
  for (const CriticalPacket &each : set.critical) {
    add(each.kind, each.body);
    has_creator = has_creator || each.kind == Kind::creator;
    if (each.kind != Kind::description) continue;
    if (const File &file = set.files[each.file]; file.sums.empty() && file.slice_count != 0)
      add(Kind::sums, sums_body(file.id, sums.subspan(file.first_slice, file.slice_count)));
  }
  if (!has_creator) add(Kind::creator, own_creator_body());
  return all;
}

// Whether the file lacks a packet without which the set says less.
bool lacks_critical(const Set &set, std::size_t packet_file) {
  const bool all_lack_some =
      std::ranges::any_of(set.files, [](const File &file) { return file.sums.empty() && file.slice_count != 0; });
  return all_lack_some || std::ranges::any_of(set.critical, [&](const CriticalPacket &each) {
           const bool is_needed = each.kind == Kind::main || each.kind == Kind::description || each.kind == Kind::sums;
           return is_needed && !each.is_in(packet_file);
         });
}

// A file that nothing but this set uses.
bool is_own(const PacketFile &file, const std::set<std::pair<dev_t, ino_t>> &protected_files) {
  struct stat status;
  return file.packet_count != 0 && !file.has_others && lstat(file.path.c_str(), &status) == 0 &&
         S_ISREG(status.st_mode) && status.st_nlink == 1 && !protected_files.contains({status.st_dev, status.st_ino});
}

}  // namespace

std::vector<LostPackets> lost_packets_of(const Report &report) {
  const Set &set = report.set;
  const auto named = std::ranges::find_if(set.packet_files, [](const PacketFile &file) {
    return file.packet_count != 0 && is_packet_file_name(file.path);
  });
  if (set.is_par1 || named == set.packet_files.end()) return {};
  const std::string folder = named->path.substr(0, named->path.size() - base::name_of(named->path).size());
  const std::string base(base_of(base::name_of(named->path)));
  std::set<std::pair<dev_t, ino_t>> protected_files;
  for (const std::string &path : report.paths)
    if (const auto status = status_of(path)) protected_files.insert(status->identity);
  base::IntervalSet known;  // exponents
  for (const RecoverySlice &slice : set.recovery) known.add(slice.exponent, slice.exponent + 1);
  bool has_first = false, has_volumes = false;
  NameParts widest;
  std::vector<std::optional<NameParts>> names;
  for (const PacketFile &file : set.packet_files) {
    const std::string name = base::name_of(file.path);
    const auto &parts = names.emplace_back(folder + name == file.path ? parts_of(name, base) : std::nullopt);
    has_first = has_first || (parts && !parts->volume);
    if (!parts || !parts->volume || file.packet_count == 0) continue;
    has_volumes = true;
    known.add(parts->volume->first, parts->volume->first + parts->volume->count);
    widest.first_digits = std::max(widest.first_digits, parts->first_digits);
    widest.count_digits = std::max(widest.count_digits, parts->count_digits);
  }
  std::vector<LostPackets> lost;
  if (!has_first && has_volumes) lost.push_back({folder + base + ".par2", {}, {}});
  for (std::size_t i = 0; i < names.size(); ++i) {
    const PacketFile &file = set.packet_files[i];
    if (!names[i] || !is_own(file, protected_files)) continue;
    Volume volume = names[i]->volume.value_or(Volume());
    if (!names[i]->volume && set.recovery_percent != 0) {
      const double count = count_of(set.recovery_percent, static_cast<double>(set.slice_count));
      volume.count = static_cast<std::uint32_t>(std::min<double>(count, kExponents));
    } else if (!names[i]->volume && !has_volumes) {
      continue;  // it may have had recovery slices, and nothing tells which
    }
    if (std::ranges::any_of(set.recovery, [&](const RecoverySlice &slice) {
          return slice.packet_file == i && slice.exponent - volume.first >= volume.count;
        }))
      continue;  // it has others than its name tells
    if (file.bytes == file.used_bytes && file.recovery_count >= volume.count && !lacks_critical(set, i)) continue;
    lost.insert(names[i]->volume ? lost.end() : lost.begin(), {file.path, volume, i});
  }
  std::vector<Volume> gaps;
  for (std::uint64_t at = 0; const auto &[first, end] : known.ends()) {
    if (at != 0 && has_volumes)
      gaps.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(first - at)});
    at = end;
  }
  std::ranges::stable_sort(gaps, {}, &Volume::count);
  std::uint64_t count = known.count();
  for (const Volume &gap : gaps) {
    const std::string path = folder + volume_name(base, gap, widest.first_digits, widest.count_digits);
    if (gap.count > count) break;
    count += gap.count;
    if (struct stat status; lstat(path.c_str(), &status) != 0) lost.push_back({path, gap, {}});
  }
  return lost;
}

void repair_packets(tandem_context *context, Report &report, const tandem_par2_repair_options &options,
                    base::Crew &crew, base::Meter &meter) {
  const Set &set = report.set;
  if (report.lost_packets.empty()) return;
  std::vector<Place> slices;
  std::uint64_t bytes = 0, known_bytes = 0, wanted = 0;
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    if (!set.files[i].is_recoverable) continue;
    if (report.files[i].state != FileState::complete)
      fail(TANDEM_ERROR_NOT_RECOVERABLE, report.paths[i], " is not complete: packet files are made of complete files");
    bytes += set.files[i].bytes;
    for (std::uint64_t each = 0; each < set.files[i].slice_count; ++each)
      slices.push_back({&report.paths[i], each * set.slice_bytes, set.files[i].bytes_of_slice(each, set.slice_bytes)});
  }
  // Names and headers may tell anything: what is made and hashed because of them is bounded by what is there.
  for (const PacketFile &file : set.packet_files) known_bytes += file.used_bytes;
  for (const LostPackets &lost : report.lost_packets) wanted += lost.volume.count;
  constexpr std::uint64_t kSmall = 1u << 20, kMostZeros = std::uint64_t{1} << 34;
  if (wanted > (2 * (bytes + known_bytes) + kSmall) / set.slice_bytes ||
      set.slice_count * set.slice_bytes > 16 * bytes + kMostZeros)
    fail(TANDEM_ERROR_TOO_LARGE, "the names of packet files tell of ", wanted, " recovery slices of ", set.slice_bytes,
         " bytes, more than twice as much as there is: nothing is made anew");
  const auto folder = std::make_shared<base::Folder>(base::folder_of(report.lost_packets.front().path));
  const std::uint64_t critical_bytes = critical_packets(set, std::vector<SliceSum>(set.slice_count)).size();
  PacketFiles files(folder, set.id, set.slice_bytes, critical_bytes, set.recovery_percent != 0 ? kSyncCopies : 0);
  for (const LostPackets &lost : report.lost_packets) {
    const std::string name = base::name_of(lost.path);
    if (!lost.packet_file && folder->has(name)) fail(TANDEM_ERROR_IO, lost.path, " exists, and has no intact packet");
    files.add(name, lost.volume, lost.packet_file ? set.packet_files[*lost.packet_file].status : std::nullopt);
  }
  files.make();
  meter.add_total(bytes + wanted * set.slice_bytes);
  const std::vector<SliceSum> sums = files.code(context, slices, options.memory_bytes, crew, meter);
  std::vector<Range> whole;  // files without checksums of slices
  std::vector<const File *> without;
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const File &file = set.files[i];
    if (!file.is_recoverable || file.slice_count == 0) continue;
    if (file.sums.empty()) {
      whole.push_back({&report.paths[i], 0, file.bytes});
      without.push_back(&file);
    } else if (!std::ranges::equal(file.sums, std::span(sums).subspan(file.first_slice, file.slice_count))) {
      fail(TANDEM_ERROR_DAMAGED, report.paths[i], " has changed since it was verified");
    }
  }
  sum_ranges(whole, false, crew, meter.counter());
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i].error != 0 || whole[i].sum.md5 != without[i]->md5)
      fail(TANDEM_ERROR_DAMAGED, *whole[i].path, " has changed since it was verified");
  meter.commit();
  files.finish(critical_packets(set, sums), false, options.no_sync != 0);
  report.remade_packets = static_cast<std::uint32_t>(report.lost_packets.size());
  Set fresh = read_set(packet_files_of(report.lost_packets.front().path, report.extra, true), crew, meter);
  report.set.packet_files = std::move(fresh.packet_files);
  report.set.recovery = std::move(fresh.recovery);
  report.set.critical = std::move(fresh.critical);
  for (std::size_t i = 0; i < fresh.files.size(); ++i) report.set.files[i].sums = std::move(fresh.files[i].sums);
  report.lost_packets = lost_packets_of(report);
}

}  // namespace tandem::par2
