// SPDX-License-Identifier: Apache-2.0
// extern "C" of par2.h.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/folder.hpp"
#include "base/lists.hpp"
#include "base/options.hpp"
#include "base/os.hpp"
#include "par2/calls.hpp"
#include "par2/files.hpp"
#include "par2/packet_repair.hpp"

struct tandem_par2_report {
  tandem::par2::Report report;
};

namespace {

using namespace tandem::par2;
using tandem::base::Crew;
using tandem::base::Meter;

}  // namespace

std::size_t tandem::par2::more_threads(std::uint32_t thread_count) {
  constexpr std::uint32_t kMost = 1024;
  if (thread_count > kMost) fail(TANDEM_ERROR_INVALID_ARGUMENT, "thread_count is ", thread_count, "; at most ", kMost);
  return std::max(thread_count != 0 ? thread_count : tandem::base::os::AffinityMask().count(), 1u) - 1;
}

tandem_par2_summary tandem::par2::summary_of(const Report &report) {
  auto summary = tandem::base::sized<tandem_par2_summary>();
  std::ranges::copy(report.set.id, summary.set_id);
  summary.slice_bytes = report.set.slice_bytes;
  summary.slice_count = static_cast<std::uint32_t>(report.set.slice_count);
  summary.found_slice_count = static_cast<std::uint32_t>(report.found_slices);
  summary.recovery_slice_count = static_cast<std::uint32_t>(report.set.recovery.size());
  summary.file_count = static_cast<std::uint32_t>(report.files.size());
  bool hopeless = false;
  for (std::size_t i = 0; i < report.files.size(); ++i) {
    const FileState state = report.files[i].state;
    (state == FileState::complete  ? summary.complete_count
     : state == FileState::renamed ? summary.renamed_count
     : state == FileState::damaged ? summary.damaged_count
     : state == FileState::missing ? summary.missing_count
                                   : summary.unreadable_count)++;
    summary.repaired_count += report.files[i].is_repaired;
    const File &file = report.set.files[i];
    const bool is_lost = state == FileState::damaged || state == FileState::missing;
    hopeless = hopeless || (is_lost && !file.is_recoverable && file.bytes != 0);
  }
  summary.remade_packet_file_count = report.remade_packets;
  summary.repair_needed = summary.complete_count != summary.file_count;
  const std::size_t lost = summary.slice_count - summary.found_slice_count;
  summary.repair_possible =
      !hopeless && lost <= usable_recovery(report.set.recovery, exponent_window(report.set), lost).size();
  for (const PacketFile &file : report.set.packet_files) summary.damaged_packet_bytes += file.bytes - file.used_bytes;
  return summary;
}

namespace {

std::vector<tandem_par2_file> listed_files(const Report &report) {
  std::vector<tandem_par2_file> list;
  for (std::size_t i = 0; i < report.files.size(); ++i) {
    const File &file = report.set.files[i];
    const FileReport &found = report.files[i];
    list.push_back({file.name.c_str(), found.state == FileState::renamed ? found.found_as.c_str() : nullptr, file.bytes,
                    static_cast<std::int32_t>(found.state), file.is_recoverable,
                    static_cast<std::uint32_t>(file.slice_count), static_cast<std::uint32_t>(found.found),
                    found.is_repaired, found.error});
  }
  return list;
}

std::vector<tandem_par2_packet_file> listed_packet_files(const Report &report) {
  std::vector<tandem_par2_packet_file> list;
  for (const PacketFile &file : report.set.packet_files)
    list.push_back(
        {file.path.c_str(), file.bytes, file.bytes - file.used_bytes, file.packet_count, file.recovery_count, 0, 0});
  for (const LostPackets &lost : report.lost_packets) {
    if (!lost.packet_file && report.scope != TANDEM_PAR2_PACKETS) continue;
    if (!lost.packet_file) list.push_back({lost.path.c_str(), 0, 0, 0, 0, 0, 0});
    tandem_par2_packet_file &file = lost.packet_file ? list[*lost.packet_file] : list.back();
    file.lost_recovery_slice_count = lost.volume.count - std::min(lost.volume.count, file.recovery_slice_count);
    file.is_lost = 1;
  }
  return list;
}

std::vector<const char *> listed_temporaries(const Report &report) {
  std::vector<const char *> list;
  for (const std::string &path : report.temporaries) list.push_back(path.c_str());
  return list;
}

std::vector<tandem_par2_searched_file> listed_searched_files(const Report &report) {
  std::set<std::string_view> left_out(report.paths.begin(), report.paths.end());
  for (const FileReport &file : report.files)
    if (file.state == FileState::renamed) left_out.insert(file.found_as);
  for (const PacketFile &file : report.set.packet_files) left_out.insert(file.path);
  std::vector<tandem_par2_searched_file> list;
  std::map<std::string_view, std::size_t> known;
  const auto is_of_set = report.set.is_par1 ? is_par1_file_name : is_packet_file_name;
  for (const std::string &path : report.others) {
    const auto unreadable = report.unreadable_others.find(path);
    const int error = unreadable != report.unreadable_others.end() ? unreadable->second : 0;
    if ((report.looks.contains(path) || error != 0) && !is_of_set(path) && !left_out.contains(path) &&
        known.emplace(path, list.size()).second) {
      const auto repeated = report.repeated.find(path);
      list.push_back({path.c_str(), nullptr, 0, 0, repeated != report.repeated.end() ? repeated->second : 0, error});
    }
  }
  for (const auto &[path, error] : report.unreadable_others)  // beside the set
    if (!left_out.contains(path) && known.emplace(path, list.size()).second)
      list.push_back({path.c_str(), nullptr, 0, 0, 0, error});
  for (const File &file : report.set.files) {
    for (std::uint64_t slice = 0; slice < file.slice_count; ++slice) {
      const auto &place = report.places[report.contents[file.first_slice + slice]];
      const auto found = place ? known.find(*place->path) : known.end();
      if (found == known.end()) continue;
      tandem_par2_searched_file &each = list[found->second];
      const bool is_alone = each.found_slice_count++ == 0 || each.name == file.name.c_str();
      each.name = is_alone ? file.name.c_str() : nullptr;
      each.slice_count = is_alone ? static_cast<std::uint32_t>(file.slice_count) : 0;
    }
  }
  return list;
}

// Old programs for Windows wrote backslashes between folders. A set has either such names or slashes: if any name is
// that of an existing file as it stands, they all stay.
void put_slashes(Set &set, const std::string &folder) {
  const auto has_backslash = [](const File &file) {
    return file.name_error == 0 && file.name.find('\\') != std::string::npos;
  };
  if (std::ranges::none_of(set.files, has_backslash)) return;
  std::vector<File> files = set.files;
  FileNames names;
  for (File &file : files) {
    if (has_backslash(file) && (status_of(joined(folder, file.name)) || !is_absent(errno))) return;
    std::string name = file.name + (file.is_folder ? "/" : "");
    std::ranges::replace(name, '\\', '/');
    if (file.name_error == 0 && set_name(file, name, names) != 0) return;
  }
  if (files_and_folders(names.files).empty()) set.files = std::move(files);
}

// Files that may have packets of the set, if it needs some. Those that are known by other names are left out.
void add_unreadable(Report &report, const std::map<std::string, int> &unreadable) {
  if (std::ranges::all_of(report.files, [](const auto &file) { return file.state == FileState::complete; })) return;
  std::set<std::pair<dev_t, ino_t>> known;
  const auto learn = [&](const std::string &path) {
    const auto status = status_of(path);
    return status && known.insert(status->identity).second;
  };
  for (const std::string &path : report.paths) learn(path);
  for (const PacketFile &file : report.set.packet_files) learn(file.path);
  for (const auto &[path, error] : report.unreadable_others) learn(path);
  for (const auto &[path, error] : unreadable)
    if (learn(path)) report.unreadable_others.emplace(path, error);
}

}  // namespace

Report tandem::par2::verify_with(const tandem_par2_verify_options &options, bool by_content) {
  if (options.path == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "path is NULL");
  if (options.scope < TANDEM_PAR2_ALL || options.scope > TANDEM_PAR2_PACKETS)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "scope is ", options.scope);
  std::vector<std::string> extra;
  for (const std::string_view path :
       tandem::base::read_strings(options.extra_paths, options.extra_count, "extra_paths"))
    extra.emplace_back(path);
  const std::size_t threads = more_threads(options.thread_count);
  Crew crew(options.rate_bytes_per_second == 0 ? threads : 0);  // waits must see a cancel
  Meter meter(options.progress, options.progress_user, 0, options.rate_bytes_per_second);
  std::map<std::string, int> unreadable;
  const std::vector<std::string> packet_files = packet_files_of(options.path, extra, by_content, &unreadable);
  Set set = is_par1_file_name(packet_files.front())
                ? read_par1_set(packet_files, crew, meter)
                : read_set(packet_files, crew, meter, options.scope != TANDEM_PAR2_DESCRIPTIONS);
  const std::string folder =
      options.base_path != nullptr ? options.base_path : tandem::base::folder_of(packet_files.front());
  put_slashes(set, folder);
  Report report = verify(std::move(set), folder, extra, options.search_distance, crew, meter, options.scope);
  if (options.scope == TANDEM_PAR2_ALL) add_unreadable(report, unreadable);
  if (options.scope == TANDEM_PAR2_ALL) report.temporaries = paths_of(temporaries_of(report));
  if (options.scope != TANDEM_PAR2_DESCRIPTIONS) report.lost_packets = lost_packets_of(report);
  meter.finish();
  return report;
}

extern "C" {

tandem_status tandem_par2_create(tandem_context *context, const tandem_par2_create_options *options,
                                 tandem_par2_create_result *result_out) {
  return guarded({{"options", options}}, [&] {
    const auto ours = tandem::base::read_options(options, "tandem_par2_create_options");
    tandem::base::check_result(result_out, "tandem_par2_create_result");
    if (ours.path == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "path is NULL");
    Crew crew(more_threads(ours.thread_count));
    Meter meter(ours.progress, ours.progress_user);
    tandem::base::write_result(create(context, ours, crew, meter), result_out, "tandem_par2_create_result");
  });
}

tandem_status tandem_par2_verify(const tandem_par2_verify_options *options, tandem_par2_report **report_out) {
  return guarded({{"options", options}, {"report_out", report_out}}, [&] {
    const auto ours = tandem::base::read_options(options, "tandem_par2_verify_options");
    *report_out = new tandem_par2_report{verify_with(ours, true)};
  });
}

tandem_status tandem_par2_repair(tandem_context *context, tandem_par2_report *report,
                                 const tandem_par2_repair_options *options) {
  return guarded({{"report", report}}, [&] {
    const auto ours = tandem::base::read_options(options, "tandem_par2_repair_options");
    Crew crew(more_threads(ours.thread_count));
    Meter meter(ours.progress, ours.progress_user);
    repair(context, report->report, ours, crew, meter);
    meter.finish();
  });
}

size_t tandem_par2_base_length(const char *path) { return path != nullptr ? base_of(path).size() : 0; }

void tandem_par2_report_destroy(tandem_par2_report *report) { delete report; }

tandem_status tandem_par2_report_query(const tandem_par2_report *report, tandem_par2_summary *summary_out) {
  return guarded({{"report", report}, {"summary_out", summary_out}}, [&] {
    tandem::base::check_result(summary_out, "tandem_par2_summary");
    tandem::base::write_result(summary_of(report->report), summary_out, "tandem_par2_summary");
  });
}

tandem_status tandem_par2_report_list(const tandem_par2_report *report, int32_t list, void *elements_out,
                                      size_t capacity, size_t stride_bytes, size_t *count_out) {
  return guarded({{"report", report}}, [&] {
    const auto write = [&]<class Element>(const std::vector<Element> &elements) {
      tandem::base::write_list(elements, static_cast<Element *>(elements_out), capacity, stride_bytes, count_out);
    };
    const Report &found = report->report;
    if (list == TANDEM_PAR2_FILES)
      write(listed_files(found));
    else if (list == TANDEM_PAR2_PACKET_FILES)
      write(listed_packet_files(found));
    else if (list == TANDEM_PAR2_SEARCHED_FILES)
      write(listed_searched_files(found));
    else if (list == TANDEM_PAR2_TEMPORARIES)
      write(listed_temporaries(found));
    else
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "list ", list, " does not exist");
  });
}

tandem_status tandem_par2_tree(tandem_context *context, const tandem_par2_tree_options *options,
                               int32_t *severity_out) {
  return guarded({{"options", options}}, [&] {
    const auto ours = tandem::base::read_options(options, "tandem_par2_tree_options");
    if (ours.action != TANDEM_PAR2_SCRUB && ours.action != TANDEM_PAR2_SYNC)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "action ", ours.action, " does not exist");
    const std::int32_t severity = ours.action == TANDEM_PAR2_SYNC ? sync(context, ours) : scrub(context, ours);
    if (severity_out != nullptr) *severity_out = severity;
  });
}

}  // extern "C"
