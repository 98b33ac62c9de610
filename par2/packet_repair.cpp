// SPDX-License-Identifier: Apache-2.0
#include "par2/packet_repair.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "base/folder.hpp"
#include "base/interval_set.hpp"
#include "par2/files.hpp"
#include "par2/packet_files.hpp"

namespace tandem::par2 {
namespace {

// Of "base.vol03+4.par2". Empty: the name does not say.
std::optional<Volume> volume_in(std::string_view name) {
  const std::string_view base = base_of(name);
  constexpr std::string_view kSign = ".vol", kEnd = ".par2";
  if (name.size() <= base.size() + kSign.size() + kEnd.size()) return {};
  const char *const end = name.data() + name.size() - kEnd.size();
  std::uint32_t first = 0, count = 0;
  const auto sign = std::from_chars(name.data() + base.size() + kSign.size(), end, first);
  if (sign.ec != std::errc() || *sign.ptr != '+') return {};
  const auto last = std::from_chars(sign.ptr + 1, end, count);
  if (last.ec != std::errc() || last.ptr != end || first >= kExponents || count > kExponents - first) return {};
  return Volume{first, count};
}

// The packets that are no recovery slices, in the order of create. sums: of slices, for packets that are lost.
Bytes critical_packets(const Set &set, std::span<const SliceSum> sums) {
  std::map<Digest, std::vector<const CriticalPacket *>> of_files;
  const CriticalPacket *main = nullptr;
  std::vector<const CriticalPacket *> others;
  for (const CriticalPacket &each : set.critical) {
    Digest id;
    if (each.kind == Kind::main) {
      main = &each;
    } else if (each.kind == Kind::kept || each.kind == Kind::creator) {
      others.push_back(&each);
    } else if (each.body.size() >= id.size()) {
      std::memcpy(id.data(), each.body.data(), id.size());
      of_files[id].push_back(&each);
    }
  }
  Bytes all;
  const auto add = [&](Kind kind, const Bytes &body) {
    const Bytes bytes = packet(kind, set.id, body);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  Main rebuilt{set.slice_bytes, {}, {}};
  for (const File &file : set.files) (file.is_recoverable ? rebuilt.recoverable : rebuilt.others).push_back(file.id);
  add(Kind::main, main != nullptr ? main->body : main_body(rebuilt));
  for (const File &file : set.files) {
    for (const Kind kind : {Kind::description, Kind::sums, Kind::unicode}) {
      bool is_there = false;
      for (const CriticalPacket *each : of_files[file.id]) {
        if (each->kind != kind || (kind == Kind::sums && file.sums.empty())) continue;
        add(kind, each->body);
        is_there = true;
      }
      if (kind == Kind::sums && !is_there && file.slice_count != 0)
        add(kind, sums_body(file.id, sums.subspan(file.first_slice, file.slice_count)));
      if (const Bytes name = kind == Kind::unicode && !is_there ? unicode_body(file) : Bytes(); !name.empty())
        add(kind, name);
    }
  }
  std::ranges::stable_sort(others, std::ranges::greater(), &CriticalPacket::kind);  // creators last
  for (const CriticalPacket *each : others) add(each->kind, each->body);
  if (others.empty() || others.back()->kind != Kind::creator) add(Kind::creator, own_creator_body());
  return all;
}

}  // namespace

std::vector<LostPackets> lost_packets_of(const Report &report) {
  const Set &set = report.set;
  const auto named =
      std::ranges::find_if(set.packet_files, [](const auto &file) { return is_packet_file_name(file.path); });
  if (set.is_par1 || named == set.packet_files.end()) return {};
  const std::string folder = base::folder_of(named->path), base(base_of(base::name_of(named->path)));
  const std::string prefix = named->path.substr(0, named->path.size() - base::name_of(named->path).size());
  std::set<std::pair<dev_t, ino_t>> is_protected;
  for (const std::string &path : report.paths)
    if (const auto status = status_of(path)) is_protected.insert(status->identity);
  const bool all_lack_some =
      std::ranges::none_of(set.critical, [](const auto &each) { return each.kind == Kind::main; }) ||
      std::ranges::any_of(set.files, [](const File &file) { return file.sums.empty() && file.slice_count != 0; });
  const auto lacks_critical = [&](std::size_t packet_file) {
    return all_lack_some || std::ranges::any_of(set.critical, [&](const CriticalPacket &each) {
             const bool is_needed =
                 each.kind == Kind::main || each.kind == Kind::description || each.kind == Kind::sums;
             return is_needed && !each.is_in(packet_file);
           });
  };
  std::vector<LostPackets> lost;
  base::IntervalSet known;
  for (const RecoverySlice &slice : set.recovery) known.add(slice.exponent, slice.exponent + 1);
  bool has_first = false;
  std::size_t first_digits = 1, count_digits = 1;
  for (std::size_t i = 0; i < set.packet_files.size(); ++i) {
    const PacketFile &file = set.packet_files[i];
    const std::string name = base::name_of(file.path);
    if (base::folder_of(file.path) != folder || base_of(name) != base || !is_packet_file_name(name)) continue;
    const bool is_first = name.size() == base.size() + 5;
    has_first = has_first || is_first;
    Volume volume;
    if (const auto told = volume_in(name)) {
      volume = *told;
      known.add(volume.first, volume.first + volume.count);
      const std::size_t sign = name.find('+', base.size());
      first_digits = std::max(first_digits, sign - base.size() - 4);
      count_digits = std::max(count_digits, name.size() - 5 - sign - 1);
    } else if (is_first && set.recovery_percent != 0) {
      volume = {0, static_cast<std::uint32_t>(count_of(set.recovery_percent, static_cast<double>(set.slice_count)))};
    } else if (file.recovery_count != 0) {
      continue;  // its name does not tell which it must have
    }
    const auto status = status_of(file.path);
    const bool is_lost = file.bytes != file.used_bytes || file.recovery_count < volume.count || lacks_critical(i);
    if (is_lost && !file.has_other_sets && status && !is_protected.contains(status->identity))
      lost.push_back({file.path, volume, i});
  }
  if (!has_first) lost.push_back({prefix + base + ".par2", {}, {}});
  std::uint64_t at = 0;
  for (const auto &[first, end] : known.ends()) {
    if (first > at && (at != 0 || 2 * first <= known.ends().rbegin()->second) && set.recovery_percent == 0) {
      const Volume gap{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(first - at)};
      lost.push_back({prefix + volume_name(base, gap, first_digits, count_digits), gap, {}});
    }
    at = end;
  }
  // The file without recovery slices gets its name last.
  std::ranges::stable_partition(
      lost, [&](const LostPackets &each) { return each.path.size() == prefix.size() + base.size() + 5; });
  return lost;
}

void repair_packets(tandem_context *context, Report &report, const tandem_par2_repair_options &options,
                    base::Crew &crew, base::Meter &meter) {
  const Set &set = report.set;
  if (set.is_par1) fail(TANDEM_ERROR_UNSUPPORTED, "packet files are not made of PAR 1.0");
  if (report.lost_packets.empty()) return;
  std::vector<Place> slices;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    if (!set.files[i].is_recoverable) continue;
    if (report.files[i].state != FileState::complete)
      fail(TANDEM_ERROR_NOT_RECOVERABLE, report.paths[i], " is not complete: packet files are made of complete files");
    bytes += set.files[i].bytes;
    for (std::uint64_t each = 0; each < set.files[i].slice_count; ++each)
      slices.push_back({&report.paths[i], each * set.slice_bytes, set.files[i].bytes_of_slice(each, set.slice_bytes)});
  }
  constexpr std::uint64_t kMostZeros = std::uint64_t{1} << 36;  // that are hashed because a header asks for it
  if (set.slice_count * set.slice_bytes > 16 * bytes + kMostZeros)
    fail(TANDEM_ERROR_UNSUPPORTED, "slices of ", set.slice_bytes, " bytes are mostly zeros");
  const std::string &any = set.packet_files.front().path;
  const auto folder = std::make_shared<base::Folder>(base::folder_of(any));
  const std::uint64_t critical_bytes = critical_packets(set, std::vector<SliceSum>(set.slice_count)).size();
  PacketFiles files(folder, set.id, set.slice_bytes, critical_bytes, set.recovery_percent != 0 ? kSyncCopies : 0);
  std::uint64_t recovery_count = 0;
  for (const LostPackets &lost : report.lost_packets) {
    if (!lost.packet_file && folder->has(base::name_of(lost.path)))
      fail(TANDEM_ERROR_IO, lost.path, " exists, and is no packet file of the set");
    files.add(base::name_of(lost.path), lost.volume);
    recovery_count += lost.volume.count;
  }
  files.make();
  meter.add_total(bytes + recovery_count * set.slice_bytes);
  const std::vector<SliceSum> sums = files.code(context, slices, options.memory_bytes, crew, meter);
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    const File &file = set.files[i];
    if (!file.is_recoverable) continue;
    const auto look = report.looks.find(report.paths[i]);
    const auto now = status_of(report.paths[i]);
    const bool is_right =
        file.sums.empty() ? now && look != report.looks.end() && base::unchanged(look->second, now->all)
                          : std::ranges::equal(file.sums, std::span(sums).subspan(file.first_slice, file.sums.size()));
    if (!is_right) fail(TANDEM_ERROR_DAMAGED, report.paths[i], " has changed since it was verified");
  }
  meter.commit();
  files.finish(critical_packets(set, sums), PacketFiles::Old::remade, options.no_sync != 0);
  report.remade_packets = static_cast<std::uint32_t>(report.lost_packets.size());
  Set fresh = read_set(packet_files_of(any, report.extra, true), crew, meter);
  report.set.packet_files = std::move(fresh.packet_files);
  report.set.recovery = std::move(fresh.recovery);
  report.lost_packets = lost_packets_of(report);
}

}  // namespace tandem::par2
