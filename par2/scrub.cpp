// SPDX-License-Identifier: Apache-2.0
// Scrub of a tree.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/options.hpp"
#include "par2/files.hpp"
#include "par2/folders.hpp"

namespace tandem::par2 {
namespace {

// One file of each set in the folder: "a.par2", or "a.vol0+1.par2" without it. The second set of sync comes first.
std::vector<std::string> sets_in(const base::Folder &folder, const Folders &folders) {
  std::map<std::string, std::string> sets;
  for (const std::string &name : folder.names()) {
    if (!is_packet_file_name(name) || is_of_new_set(name) || folders.is_excluded(folder.path_of(name))) continue;
    struct stat status;
    if (fstatat(folder.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
      continue;
    const std::string base(base_of(name));
    if (const auto [entry, is_new] = sets.emplace(name == kMoreName ? "" : base, name);
        !is_new && base.size() + 5 == name.size())
      entry->second = name;
  }
  std::vector<std::string> paths;
  for (const auto &[base, name] : sets) paths.push_back(folder.path_of(name));
  return paths;
}

class Scrub {
 public:
  Scrub(tandem_context *context, const tandem_par2_tree_options &options)
      : context_(context), options_(options), folders_(options) {}

  std::int32_t run() {
    std::vector<std::string> all = folders_.all(), sets;
    for (const std::string &path : all)
      folders_.guard(path, [&] { std::ranges::move(sets_in(base::Folder(path), folders_), std::back_inserter(sets)); });
    for (const std::string &set : sets) folders_.set_is_there(set);
    folders_.finish_list(false);
    if (sets.empty() && folders_.severity() == TANDEM_PAR2_FINE)
      fail(TANDEM_ERROR_IO, options_.path, " has no PAR2 set; `tandem par2 sync` makes them");
    for (const std::string &set : sets) {
      folder_is_known_ = false;
      folders_.guard(set, [&] { check(set); });
      if (!folder_is_known_) unread_.insert(base::folder_of(set));
    }
    for (const std::string &path : all)
      if (!unread_.contains(path)) folders_.guard(path, [&] { look_for_unprotected(base::Folder(path)); });
    return folders_.severity();
  }

 private:
  void check(const std::string &path) {
    const auto folder = std::make_shared<base::Folder>(base::folder_of(path));
    const base::FoldersLock lock({folder}, folders_.lock_wait());
    struct stat set;
    if (lstat(path.c_str(), &set) != 0) fail_io("look at", path, errno);
    auto begun = event_of(TANDEM_PAR2_SET_BEGUN, path);
    Report report;
    std::exception_ptr failure;
    try {
      report = verify_with(folders_.verify_options(path, TANDEM_PAR2_DESCRIPTIONS));
    } catch (const Error &) {  // an unreadable set has its turn like any other
      failure = std::current_exception();
    }
    for (const File &file : report.set.files) {
      begun.bytes += file.bytes;
      protected_.insert(folder->path_of(file.name));
      if (base::name_of(path) == kMoreName) superseding_.insert(folder->path_of(file.name));
    }
    for (const PacketFile &file : report.set.packet_files) protected_.insert(file.path);
    folder_is_known_ = !failure;
    if (folders_.report(begun)) return;
    if (failure && base::name_of(path) == kMoreName) unread_more_.insert(base::folder_of(path));
    if (failure) std::rethrow_exception(failure);
    report = verify_with(folders_.verify_options(path, TANDEM_PAR2_ALL));
    std::map<std::int32_t, std::size_t> counts;
    const auto states = [&] {
      std::vector<std::int32_t> all;
      counts.clear();
      for (std::size_t i = 0; i < report.files.size(); ++i)
        ++counts[all.emplace_back(state_of(report, i, set.st_mtim, path))];
      return all;
    };
    std::vector<std::int32_t> all = states();
    tandem_par2_summary summary = summary_of(report);
    const auto is_damaged_set = [&] {
      return summary.damaged_packet_bytes != 0 || lacks_recovery_slices(report.set) ||
             std::ranges::any_of(report.lost_packets, [](const auto &lost) { return lost.packet_file.has_value(); });
    };
    const bool mends_packets = is_damaged_set() && !report.lost_packets.empty() &&
                               counts[TANDEM_PAR2_FILE_CHANGED] + counts[TANDEM_PAR2_FILE_UNREADABLE] == 0;
    if (options_.repair != 0 && summary.repair_possible != 0 &&
        (counts[TANDEM_PAR2_FILE_SUSPECT] + counts[TANDEM_PAR2_FILE_GONE] != 0 || !report.temporaries.empty() ||
         mends_packets) &&
        // Else the second set may describe newer content of these files.
        !(base::name_of(path) == kSetName && unread_more_.contains(base::folder_of(path))) &&
        leave_changed_alone(report, all)) {
      failure = mend(report, mends_packets);
      all = states();
      summary = summary_of(report);
    }
    const bool is_damaged = counts[TANDEM_PAR2_FILE_SUSPECT] + counts[TANDEM_PAR2_FILE_GONE] != 0;
    const bool is_lost = is_damaged && summary.repair_possible == 0;
    std::map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < all.size(); ++i) by_name.emplace(report.set.files[i].name, i);
    for (const auto &[its_name, i] : by_name) {
      const File &file = report.set.files[i];
      const std::string name = folder->path_of(file.name);
      const bool is_fine = all[i] == TANDEM_PAR2_FILE_RIGHT || all[i] == TANDEM_PAR2_FILE_REPAIRED ||
                           (all[i] == TANDEM_PAR2_FILE_CHANGED && is_superseded(path, name));
      auto event = event_of(all[i], name,
                            is_fine                                         ? TANDEM_PAR2_FINE
                            : all[i] == TANDEM_PAR2_FILE_UNREADABLE         ? TANDEM_PAR2_UNREAD
                            : is_lost && all[i] != TANDEM_PAR2_FILE_CHANGED ? TANDEM_PAR2_LOST
                                                                            : TANDEM_PAR2_ATTENTION);
      event.slice_count = static_cast<std::uint32_t>(file.slice_count);
      event.lost_slice_count = static_cast<std::uint32_t>(file.slice_count - report.files[i].found);
      folders_.report(event,
                      all[i] == TANDEM_PAR2_FILE_UNREADABLE ? base::error_text(report.files[i].error) : std::string());
    }
    if (failure) std::rethrow_exception(failure);
    const bool lacks = lacks_recovery_slices(report.set), is_whole = !is_damaged_set();
    const std::int32_t what = is_lost                                    ? TANDEM_PAR2_SET_LOST
                              : is_damaged || !is_whole                  ? TANDEM_PAR2_SET_RECOVERABLE
                              : counts[TANDEM_PAR2_FILE_CHANGED] != 0    ? TANDEM_PAR2_SET_OUTDATED
                              : counts[TANDEM_PAR2_FILE_UNREADABLE] != 0 ? TANDEM_PAR2_SET_FAILED
                                                                         : TANDEM_PAR2_SET_COMPLETE;
    auto event = event_of(what, path,
                          is_lost                            ? TANDEM_PAR2_LOST
                          : what == TANDEM_PAR2_SET_FAILED   ? TANDEM_PAR2_UNREAD
                          : what != TANDEM_PAR2_SET_COMPLETE ? TANDEM_PAR2_ATTENTION
                                                             : TANDEM_PAR2_FINE);
    event.bytes = begun.bytes;
    event.file_count = summary.file_count;
    event.slice_count = summary.slice_count;
    event.lost_slice_count = summary.slice_count - summary.found_slice_count;
    event.recovery_slice_count = summary.recovery_slice_count;
    std::string message;
    if (lacks)
      message = text("the set has only ", summary.recovery_slice_count,
                     " recovery slices, fewer than it was made with: sync makes it anew");
    else if (!is_whole)
      message = text(summary.damaged_packet_bytes, " bytes of the set are damaged");
    if (!is_whole && mends_packets && options_.repair == 0) message += "; scrub with repair (`--repair`) mends it";
    if (report.remade_packets != 0) message = "the set was damaged, and is made anew";
    folders_.report(event, message);
  }

  // Whether the first set has an older version of a file that the second set describes.
  bool is_superseded(const std::string &set, const std::string &file) const {
    return base::name_of(set) == kSetName && superseding_.contains(file);
  }

  std::int32_t state_of(const Report &report, std::size_t i, const timespec &set_time, const std::string &set) const {
    const std::string path = joined(base::folder_of(set), report.set.files[i].name);
    const FileReport &found = report.files[i];
    if (found.state == FileState::complete)
      return found.is_repaired ? TANDEM_PAR2_FILE_REPAIRED : TANDEM_PAR2_FILE_RIGHT;
    struct stat now;
    if (found.state == FileState::unreadable && found.error != 0) return TANDEM_PAR2_FILE_UNREADABLE;
    if (is_superseded(set, path)) return TANDEM_PAR2_FILE_CHANGED;
    if (lstat(path.c_str(), &now) != 0) return TANDEM_PAR2_FILE_GONE;
    return look_at(report.set.files[i], set_time, now) == Look::newer ? TANDEM_PAR2_FILE_CHANGED
                                                                      : TANDEM_PAR2_FILE_SUSPECT;
  }

  // What repair does with a file that cannot be read. False: a changed file has the whole content of another one, which
  // repair would take from it.
  static bool leave_changed_alone(Report &report, const std::vector<std::int32_t> &states) {
    Names changed;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (states[i] != TANDEM_PAR2_FILE_CHANGED) continue;
      report.files[i].state = FileState::unreadable;
      changed.insert(report.paths[i]);
    }
    return std::ranges::none_of(report.files, [&](const FileReport &file) {
      return file.state == FileState::renamed && changed.contains(file.found_as);
    });
  }

  // Files get the times that they had when sync made the set: they are as old as that. Returns why some files could not
  // be repaired.
  std::exception_ptr mend(Report &report, bool mends_packets) {
    auto options = base::sized<tandem_par2_repair_options>();
    options.memory_bytes = options_.memory_bytes;
    options.no_sync = options_.no_sync;
    options.packets = mends_packets;
    base::Crew crew(more_threads(options_.thread_count));
    base::Meter meter(options_.progress, options_.progress_user);
    std::exception_ptr failure;
    try {
      repair(context_, report, options, crew, meter);
    } catch (const Error &) {
      failure = std::current_exception();
    }
    if (!failure) meter.finish();
    for (std::size_t i = 0; i < report.files.size(); ++i) {
      const auto modified = report.set.files[i].modified_ns;
      if (!report.files[i].is_repaired || !modified) continue;
      constexpr std::int64_t kSecond = 1000000000;
      const std::int64_t rest = (*modified % kSecond + kSecond) % kSecond;
      const timespec times[2] = {{0, UTIME_OMIT},
                                 {static_cast<time_t>((*modified - rest) / kSecond), static_cast<long>(rest)}};
      utimensat(AT_FDCWD, joined(report.folder, report.set.files[i].name).c_str(), times, AT_SYMLINK_NOFOLLOW);
    }
    return failure;
  }

  void look_for_unprotected(const base::Folder &folder) {
    for (const auto &[name, status] : folders_.files_in(folder)) {
      const std::string path = folder.path_of(name);
      const int reason = protected_.contains(path) ? -1 : Folders::reason_to_leave_out(folder, name);
      if (reason == 0) folders_.report(event_of(TANDEM_PAR2_FILE_UNPROTECTED, path, TANDEM_PAR2_ATTENTION));
      if (reason > 0)
        folders_.report(event_of(TANDEM_PAR2_FILE_UNREADABLE, path, TANDEM_PAR2_UNREAD), base::error_text(reason));
    }
  }

  tandem_context *const context_;
  const tandem_par2_tree_options &options_;
  Folders folders_;
  Names protected_, superseding_;  // paths of files
  bool folder_is_known_ = false;   // what this set has of its folder
  Names unread_, unread_more_;     // of folders with sets, or with a second set, that cannot be read
};

}  // namespace

std::int32_t scrub(tandem_context *context, const tandem_par2_tree_options &options) {
  if (options.accepted_count != 0 || options.recovery_percent != 0 || options.dry_run != 0 || options.force != 0 ||
      options.no_verify != 0 || options.accept_removed != 0 || options.accept_many != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         "accepted_paths, recovery_percent, dry_run, force, no_verify, accept_removed and accept_many are of "
         "sync");
  more_threads(options.thread_count);  // refuses
  return Scrub(context, options).run();
}

}  // namespace tandem::par2
