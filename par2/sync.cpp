// SPDX-License-Identifier: Apache-2.0
// Sync of a tree. A set is one file, so that one rename replaces it: a kill leaves the old set or the new one.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/options.hpp"
#include "base/pending_file.hpp"
#include "par2/files.hpp"
#include "par2/folders.hpp"
#include "par2/sources.hpp"

namespace tandem::par2 {
namespace {

constexpr double kDefaultPercent = 5;

// One of the two sets of a folder, as it is when its folder has its turn.
struct OldSet {
  explicit OldSet(const char *its_name) : name(its_name) {}

  std::string name, path;
  std::optional<struct stat> status;              // none: there is no such set
  std::optional<Report> report;                   // none: nothing can be read from it
  std::map<std::string_view, std::size_t> files;  // of the report, by name
  bool is_lost = false;                           // a repair is not possible
  bool stays = false;

  void set_report(Report found) {
    is_lost = found.scope == TANDEM_PAR2_ALL && summary_of(found).repair_possible == 0;
    report = std::move(found);
    files.clear();
    for (std::size_t i = 0; i < report->files.size(); ++i) files.emplace(report->set.files[i].name, i);
  }
  bool is_read() const { return report && report->scope == TANDEM_PAR2_ALL; }
  Look look(std::size_t file, const struct stat &now) const {
    return look_at(report->set.files[file], status->st_mtim, now);
  }
};

// The set's own; of another program's set `guess`, if it may be that.
double percent_of(const Set &set, double guess) {
  if (set.recovery_percent != 0) return set.recovery_percent;
  const double count = set.recovery.empty() ? 0 : set.recovery.back().exponent + 1.0;
  const auto slices = static_cast<double>(set.slice_count);
  return count == 0 || count == count_of(guess, slices) ? guess : 100 * count / slices;
}

std::vector<Source> sources_of(const auto &files, const auto &bytes_of) {
  std::vector<Source> sources(files.size());
  std::ranges::transform(files, sources.begin(), [&](const auto &file) {
    Source source;
    source.bytes = bytes_of(file);
    return source;
  });
  return sources;
}

// A folder's turn.
class Sync {
 public:
  Sync(tandem_context *context, const tandem_par2_tree_options &options, Folders &folders, std::string path)
      : context_(context),
        options_(options),
        folders_(folders),
        folder_(std::make_shared<base::Folder>(std::move(path))) {
    if (options_.dry_run == 0) {
      lock_.emplace(base::Folders{folder_}, folders_.lock_wait());
      remove_temporaries();
    }
  }
  ~Sync() { remove_temporaries(); }
  Sync(const Sync &) = delete;
  Sync &operator=(const Sync &) = delete;

  void run() {
    files_ = folders_.files_in(*folder_);
    for (OldSet *set : {&first_, &second_}) load(*set, TANDEM_PAR2_DESCRIPTIONS);
    find_owners();
    leave_out();
    const bool is_same = first_.report && !second_.status && !needs(first_, files_);
    if (!is_same && options_.no_verify == 0 && options_.dry_run == 0) {
      for (OldSet *set : {&first_, &second_})
        if (set->report && must_be_read(*set)) load(*set, TANDEM_PAR2_ALL);
      find_owners();
    }
    judge();
    if (const std::size_t most = std::max<std::size_t>(10, owners_.size() / 10);
        options_.accept_many == 0 && rewritten_ > most) {
      first_.stays = second_.stays = true;
      end(first_, TANDEM_PAR2_SET_KEPT, TANDEM_PAR2_ATTENTION,
          text(rewritten_, " of ", owners_.size(), " files were removed or rewritten at once, more than ", most,
               ": nothing is done in this folder, unless that is meant (accept_many, `--accept-many`)"));
      return;
    }
    if (first_.stays && first_.report) end(first_, TANDEM_PAR2_SET_KEPT, TANDEM_PAR2_ATTENTION);
    if (second_.stays && second_.report) end(second_, TANDEM_PAR2_SET_KEPT, TANDEM_PAR2_ATTENTION);
    OldSet &into = first_.stays ? second_ : first_;
    if (into.stays) {
      for (const auto &[name, status] : files_)
        if (!owners_.contains(name) || changed_.contains(name))
          say(TANDEM_PAR2_FILE_UNPROTECTED, name, TANDEM_PAR2_ATTENTION);
      return;
    }
    Files wanted = files_;
    std::erase_if(wanted, [&](const auto &file) {
      const auto owner = owners_.find(file.first);
      return owner != owners_.end() && owner->second != &into &&
             (owner->second->stays && !changed_.contains(file.first));
    });
    put(into, wanted);
    if (&into == &first_ && second_.status && !second_.stays) remove(second_);
  }

 private:
  void load(OldSet &set, std::int32_t scope) {
    set.path = folder_->path_of(set.name);
    struct stat status;
    if (fstatat(folder_->descriptor(), set.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) fail_io("look at", set.path, errno);
      return;
    }
    set.status = status;
    if (scope == TANDEM_PAR2_ALL) return set.set_report(verify_with(folders_.verify_options(set.path, scope)));
    std::int32_t severity = TANDEM_PAR2_ATTENTION;
    std::string problem = "it is no regular file";
    try {
      if (S_ISREG(status.st_mode)) set.set_report(verify_with(folders_.verify_options(set.path, scope)));
    } catch (const Error &error) {
      if (error.status() == TANDEM_ERROR_CANCELLED || error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
      const bool is_read = error.status() == TANDEM_ERROR_UNSUPPORTED || error.status() == TANDEM_ERROR_TOO_LARGE;
      if (!is_read) severity = Folders::severity_of(error);
      problem = error.what();
    }
    if (set.report || options_.force != 0) return;
    set.stays = true;
    end(set, TANDEM_PAR2_SET_KEPT, severity, problem + "; it stays, unless it shall be made anew (force, `--force`)");
  }

  // The second set describes what has changed since the first one.
  void find_owners() {
    owners_.clear();
    for (OldSet *set : {&first_, &second_})
      if (set->report)
        for (const File &file : set->report->set.files) owners_[file.name] = set;
  }

  // Not if it stays anyway, and nothing has changed but that files are gone.
  bool must_be_read(const OldSet &set) const {
    bool has_gone = false, differs = false;
    for (const auto &[name, owner] : owners_) {
      const auto now = owner == &set ? files_.find(name) : files_.end();
      if (owner == &set && now == files_.end())
        has_gone = has_gone || (!is_accepted(name) && options_.accept_removed == 0);
      else if (owner == &set)
        differs = differs || set.look(set.files.at(name), now->second) != Look::same;
    }
    return differs || !has_gone;
  }
  bool is_accepted(const std::string &name) const { return folders_.is_accepted(folder_->path_of(name), false); }

  // New files that are packets, or cannot be read.
  void leave_out() {
    std::erase_if(files_, [&](const auto &file) {
      const int reason = owners_.contains(file.first) ? 0 : Folders::reason_to_leave_out(*folder_, file.first);
      if (reason > 0) say(TANDEM_PAR2_FILE_UNREADABLE, file.first, TANDEM_PAR2_UNREAD, base::error_text(reason));
      if (reason < 0) say(TANDEM_PAR2_FILE_IS_PACKETS, file.first);
      return reason != 0;
    });
  }

  // Whether the set must be made anew to describe these files as they are.
  bool needs(const OldSet &set, const Files &wanted) const {
    if (!set.report || options_.force != 0 || set.report->files.size() != wanted.size()) return true;
    if (lacks_recovery_slices(set.report->set)) return true;
    if (options_.recovery_percent != 0 &&
        std::abs(percent_of(set.report->set, options_.recovery_percent) - options_.recovery_percent) > 1e-9)
      return true;
    return std::ranges::any_of(wanted, [&](const auto &each) {
      const auto file = set.files.find(each.first);
      return file == set.files.end() || set.look(file->second, each.second) != Look::same;
    });
  }

  // Which files have changed, and which sets stay because of others.
  void judge() {
    for (const auto &[name, owner] : owners_) {
      const std::size_t i = owner->files.at(name);
      const File &file = owner->report->set.files[i];
      const FileReport &found = owner->report->files[i];
      const auto now = files_.find(name);
      if (now == files_.end()) {
        const bool is_accepted_one = is_accepted(name);
        rewritten_ += !is_accepted_one;
        const bool is_meant = is_accepted_one || options_.accept_removed != 0;
        if (is_accepted_one) folders_.note_accepted(folder_->path_of(name));
        owner->stays = owner->stays || !is_meant;
        say(TANDEM_PAR2_FILE_GONE, name, is_meant ? TANDEM_PAR2_FINE : TANDEM_PAR2_ATTENTION,
            folders_.is_excluded(folder_->path_of(name)) ? "it is excluded now" : "");
        continue;
      }
      const Look look = owner->look(i, now->second);
      if (owner->is_read() ? found.state == FileState::complete
                           : look == Look::same && folder_->open_file(name, O_RDONLY))
        continue;
      const bool is_accepted_one = is_accepted(name);
      const int opened = Folders::reason_to_leave_out(*folder_, name);
      if (const int error = found.error != 0 ? found.error : opened; error > 0) {
        owner->stays = true;
        say(TANDEM_PAR2_FILE_UNREADABLE, name, TANDEM_PAR2_UNREAD, base::error_text(error));
      } else if (look == Look::newer || is_accepted_one) {
        rewritten_ += !is_accepted_one;
        if (look != Look::newer) folders_.note_accepted(folder_->path_of(name));
        changed_.insert(name);
        say(TANDEM_PAR2_FILE_CHANGED, name);
      } else {
        owner->stays = true;
        const std::string path = folder_->path_of(name);
        auto event =
            event_of(TANDEM_PAR2_FILE_SUSPECT, path, owner->is_lost ? TANDEM_PAR2_LOST : TANDEM_PAR2_ATTENTION);
        event.slice_count = static_cast<std::uint32_t>(file.slice_count);
        event.lost_slice_count = owner->is_read() ? static_cast<std::uint32_t>(file.slice_count - found.found) : 0;
        folders_.report(event);
      }
    }
  }

  void put(OldSet &into, const Files &wanted) {
    if (wanted.empty()) {
      if (!into.status) return;
      remove(into);
      return end(into, TANDEM_PAR2_SET_REMOVED);
    }
    if (!needs(into, wanted)) return end(into, TANDEM_PAR2_SET_UNCHANGED);
    for (const auto &[name, status] : wanted)
      if (!owners_.contains(name)) say(TANDEM_PAR2_FILE_ADDED, name);
    const bool was_lost = !into.status && folders_.list() && folders_.list()->contains(folders_.relative(into.path));
    percent_ = wanted_percent(into.report ? into : first_);
    if (options_.dry_run == 0) make(into, wanted);
    end(into, into.status ? TANDEM_PAR2_SET_REPLACED : TANDEM_PAR2_SET_MADE,
        was_lost ? TANDEM_PAR2_ATTENTION : TANDEM_PAR2_FINE,
        was_lost ? "the list of sets has it, but it was not there: nothing protected its files" : "");
  }

  // Waits until a file that is written from now on is newer than each of these. Only times in the future stay newer.
  void wait_for_clock(const Files &wanted) const {
    constexpr std::int64_t kLongestTick = 3000000000;  // FAT has 2 s
    const std::string probe = std::string(kNewName) + ".time";
    for (int i = 0; i < 200; ++i) {
      struct stat status;
      const base::PendingFile file(folder_, probe, 01000);
      if (fstat(file.descriptor(), &status) != 0) fail_io("look at", file.path(), errno);
      const std::int64_t now = nanoseconds_of(status.st_mtim);
      if (std::ranges::none_of(wanted, [&](const auto &each) {
            const std::int64_t modified = nanoseconds_of(each.second.st_mtim);
            return modified >= now && modified - now < kLongestTick;
          }))
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void make(const OldSet &into, const Files &wanted) {
    wait_for_clock(wanted);
    const std::string base = folder_->path_of(kNewName);
    std::vector<std::string> paths;
    for (const auto &[name, status] : wanted) paths.push_back(folder_->path_of(name));
    std::vector<const char *> pointers;
    for (const std::string &path : paths) pointers.push_back(path.c_str());
    const OldSet &kept = into.report ? into : first_;
    auto options = base::sized<tandem_par2_create_options>();
    options.path = base.c_str();
    options.source_paths = pointers.data();
    options.source_count = pointers.size();
    options.recovery_percent = percent_;
    options.slice_bytes = slice_bytes_for(kept, wanted);
    options.volumes = TANDEM_PAR2_UNIFORM;
    options.volume_count = 1;
    options.critical_copies = kSyncCopies;
    options.thread_count = options_.thread_count;
    options.memory_bytes = options_.memory_bytes;
    options.force = 1;
    options.no_sync = options_.no_sync;
    base::Crew crew(more_threads(options.thread_count));
    base::Meter meter(options_.progress, options_.progress_user);
    result_ = create(context_, options, crew, meter, true);
    for (const auto &[name, status] : wanted) {
      struct stat now;
      if (fstatat(folder_->descriptor(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0 || !base::unchanged(status, now))
        fail(TANDEM_ERROR_IO, folder_->path_of(name), " has changed during the call");
    }
    std::string made = std::string(kNewName) + ".par2";  // without recovery slices, if all files are empty
    for (const std::string &name : folder_->names())
      if (name.starts_with(std::string(kNewName) + ".vol")) made = name;
    folder_->rename(made, into.name, true);
    remove_temporaries();
    if (options_.no_sync == 0) folder_->sync();
  }

  double wanted_percent(const OldSet &set) const {
    if (options_.recovery_percent != 0) return options_.recovery_percent;
    return set.report ? percent_of(set.report->set, kDefaultPercent) : kDefaultPercent;
  }

  // A set with slices of another size than sync chooses keeps it while that is possible.
  std::uint64_t slice_bytes_for(const OldSet &set, const Files &wanted) const {
    const std::vector<Source> files =
        sources_of(wanted, [](const auto &file) { return static_cast<std::uint64_t>(file.second.st_size); });
    if (set.report && options_.force == 0) {
      const std::uint64_t bytes = set.report->set.slice_bytes;
      std::uint64_t count = 0, largest = 0;
      for (const Source &file : files) {
        count += slices_of(file.bytes, bytes);
        largest = std::max(largest, file.bytes);
      }
      if (bytes !=
              default_slice_bytes(sources_of(set.report->set.files, [](const File &file) { return file.bytes; })) &&
          count <= kMostSlices && bytes <= std::max(largest, kMostPaddedBytes))
        return bytes;
    }
    return default_slice_bytes(files);
  }

  void remove(const OldSet &set) {
    if (options_.dry_run != 0) return;
    folder_->remove(set.name);
    if (options_.no_sync == 0) folder_->sync();
    folders_.set_is_removed(set.path);
  }

  void say(std::int32_t what, const std::string &name, std::int32_t severity = TANDEM_PAR2_FINE,
           const std::string &message = {}) {
    const std::string path = folder_->path_of(name);
    folders_.report(event_of(what, path, severity), message);
  }

  // Ends a set's turn.
  void end(const OldSet &set, std::int32_t what, std::int32_t severity = TANDEM_PAR2_FINE,
           const std::string &message = {}) {
    if (what != TANDEM_PAR2_SET_REMOVED) folders_.set_is_there(set.path, set.status.has_value());
    auto event = event_of(what, set.path, severity);
    if (result_) {
      event.bytes = result_->source_bytes;
      event.file_count = result_->file_count;
      event.slice_count = result_->slice_count;
      event.recovery_slice_count = result_->recovery_slice_count;
    } else if (set.report && (what == TANDEM_PAR2_SET_UNCHANGED || what == TANDEM_PAR2_SET_KEPT)) {
      const Set &old = set.report->set;
      for (const File &file : old.files) event.bytes += file.bytes;
      event.file_count = static_cast<std::uint32_t>(old.files.size());
      event.slice_count = static_cast<std::uint32_t>(old.slice_count);
      event.recovery_slice_count = static_cast<std::uint32_t>(old.recovery.size());
      event.recovery_percent = percent_of(old, kDefaultPercent);
    }
    if (what == TANDEM_PAR2_SET_MADE || what == TANDEM_PAR2_SET_REPLACED) event.recovery_percent = percent_;
    folders_.report(event, message);
  }

  void remove_temporaries() const noexcept {
    try {
      if (!lock_) return;
      for (const std::string &name : folder_->names())
        if (is_of_new_set(name)) folder_->remove(name);
    } catch (...) {  // the next sync tries again
    }
  }

  tandem_context *const context_;
  const tandem_par2_tree_options &options_;
  Folders &folders_;
  std::shared_ptr<base::Folder> folder_;
  std::optional<base::FoldersLock> lock_;
  OldSet first_{kSetName}, second_{kMoreName};
  Files files_;                             // that can be in a set
  std::map<std::string, OldSet *> owners_;  // the set that describes a file, by name
  Names changed_;
  std::size_t rewritten_ = 0;  // and removed, and not accepted by name
  double percent_ = 0;
  std::optional<tandem_par2_create_result> result_;
};

}  // namespace

std::int32_t sync(tandem_context *context, const tandem_par2_tree_options &options) {
  if (options.repair != 0 || options.rate_bytes_per_second != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "repair and rate_bytes_per_second are of scrub");
  if (!(options.recovery_percent >= 0 && options.recovery_percent <= 1e6))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "recovery_percent is out of range");
  more_threads(options.thread_count);  // refuses
  Folders folders(options);
  for (const std::string &folder : folders.all()) {
    const std::string set = joined(folder, kSetName);
    folders.report(event_of(TANDEM_PAR2_SET_BEGUN, set));
    folders.guard(set, [&] { Sync(context, options, folders, folder).run(); });
  }
  folders.finish_list(options.dry_run == 0);
  return folders.severity();
}

}  // namespace tandem::par2
