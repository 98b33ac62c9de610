// SPDX-License-Identifier: Apache-2.0
#include "par2/calls.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/bytes.hpp"
#include "base/options.hpp"
#include "par2/columns.hpp"
#include "par2/files.hpp"
#include "par2/packet_repair.hpp"
#include "par2/tree.hpp"
#include "tandem/diagnose.h"

namespace tandem::par2 {
namespace {

constexpr std::size_t kCopyPiece = 1u << 20, kMostLocked = 16, kMostNamed = 10;

using Identity = std::pair<dev_t, ino_t>;

enum class Way {
  in_place,  // only wrong slices are written
  renamed,   // another file has the whole content
  rebuilt    // written beside
};

// A file that is to become complete.
struct Work {
  std::size_t file;
  Way way;
  std::optional<struct stat> old;         // what has its name, not followed
  std::optional<struct stat> reserved{};  // in_place: the same when it has space for all that is written
  std::string temporary{}, aside{};       // names: of the new file, and of the old one when it makes room
  bool is_whole = false;                  // rebuilt: found_as is copied
};

// A slice that is written: copied from its place, or computed.
struct Job {
  std::size_t work;
  std::uint64_t slice, offset, bytes;  // slice: of the set; the others in the file
  std::optional<Place> from;
  std::uint64_t stored_at;  // in_place: in the store
};

// New slices of files that are repaired in place: in memory, or in a file without a name.
class Store {
 public:
  // Returns how much memory it takes.
  std::uint64_t open(std::uint64_t bytes, std::uint64_t most_memory, const base::Folder &folder,
                     const std::string &name) {
    if (bytes <= most_memory) {
      memory_.resize(bytes);
      return bytes;
    }
    bytes_ = bytes;
    path_ = folder.path();
    file_ = base::Descriptor(openat(folder.descriptor(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file_) {
      file_ = folder.open_file(name, O_RDWR | O_CREAT | O_EXCL, 0600);
      if (file_) folder.remove(name);
    }
    if (!file_) fail_with("create", errno);
    return 0;
  }
  void write(std::uint64_t at, const std::byte *bytes, std::size_t count) {
    if (!file_) {
      std::memcpy(memory_.data() + at, bytes, count);
    } else if (!base::write_at(file_.get(), bytes, count, at)) {
      fail_with("write", errno);
    }
  }
  void read(std::uint64_t at, std::byte *into, std::size_t count) const {
    if (!file_) {
      std::memcpy(into, memory_.data() + at, count);
    } else if (base::read_at(file_.get(), into, count, at) != static_cast<std::int64_t>(count)) {
      fail_with("read", EIO);
    }
  }

 private:
  [[noreturn]] void fail_with(const char *what, int error_number) const {
    fail_io(text(what, " a file without a name, for computed slices of ", bytes_,
                 " bytes, more than half of memory_bytes (--memory), in"),
            path_, error_number);
  }

  std::uint64_t bytes_ = 0;
  Bytes memory_;
  base::Descriptor file_;
  std::string path_;
};

// Lost slices cannot be computed. Files that need none of them can still be made complete.
struct NotComputed : Error {
  template <class... Parts>
  NotComputed(tandem_status status, const Parts &...sentence) : Error(status, text(sentence...)) {}
};

class Repair {
 public:
  // why_not: computes no lost slices; files that need some stay as they are, and the call fails so when the others are
  // repaired.
  Repair(tandem_context *context, Report &report, const tandem_par2_repair_options &options, base::Crew &crew,
         base::Meter &meter, const NotComputed *why_not = nullptr)
      : why_not_(why_not),
        context_(context),
        report_(report),
        set_(report.set),
        options_(options),
        crew_(crew),
        meter_(meter),
        tree_(report.folder) {}
  ~Repair() {
    if (is_done_) return;
    restore_lengths();
    for (const Work &work : works_) {
      if (work.temporary.empty()) continue;
      try {
        const Entry entry = entry_of(work);
        entry.folder->remove(work.temporary);
      } catch (...) {  // it stays
      }
    }
    tree_.remove_made();
  }
  Repair(const Repair &) = delete;
  Repair &operator=(const Repair &) = delete;

  void run() {
    plan();
    make_folders();
    if (!works_.empty()) run_works();
    is_done_ = true;
    remove_old_temporaries();
    if (blocked_count_ > kMostNamed) blocked_ += text("; ", blocked_count_ - kMostNamed, " more such files");
    if (!blocked_.empty())
      fail(blocked_status_, blocked_, works_.empty() && folders_.empty() ? "" : "; the other files are repaired");
  }

 private:
  void run_works() {
    make_temporaries();
    list_jobs();
    copy();
    compute();
    check_results();
    finish_temporaries();
    check_unchanged();
    reserve();
    choose_asides();
    meter_.commit();
    write_in_place();
    rename();
    is_done_ = true;
    update_report();
  }

  // Of dead calls. While a file is not complete, one of them may have its content.
  void remove_old_temporaries() {
    const bool is_complete =
        std::ranges::all_of(report_.files, [](const auto &file) { return file.state == FileState::complete; });
    for (const Entry &entry : is_complete ? temporaries_of(report_) : std::vector<Entry>()) {
      const base::Descriptor file = base::open_to_lock(*entry.folder, entry.name);
      if (file && base::lock_file(file) == base::Lock::ours)
        unlinkat(entry.folder->descriptor(), entry.name.c_str(), 0);  // else it stays, and the report has it
    }
    report_.temporaries = paths_of(temporaries_of(report_));
  }

  const File &file_of(const Work &work) const { return set_.files[work.file]; }
  FileReport &found_of(const Work &work) { return report_.files[work.file]; }
  const std::string &path_of(const Work &work) const { return report_.paths[work.file]; }
  Entry entry_of(const Work &work) { return tree_.find(file_of(work).name); }

  [[noreturn]] static void fail_changed(const std::string &path) {
    fail(TANDEM_ERROR_DAMAGED, path, " has changed since it was verified");
  }
  // What is read of other files is checked when it is used.
  void check_unchanged(bool all = false) const {
    for (const auto &[path, before] : report_.looks) {
      struct stat now;
      if (!all && !changing_.contains(path)) continue;
      const int error = stat(path.c_str(), &now) != 0 ? errno : 0;
      if (error != 0 && !is_absent(error)) fail_io("look at", path, error);
      if (error != 0 || !base::unchanged(before, now)) fail_changed(path);
    }
  }

  // ---- the way of each file

  void plan() {
    find_needed();
    check_unchanged();
    if (why_not_ != nullptr) {
      blocked_ = why_not_->what();
      blocked_status_ = why_not_->status();
    }
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      const File &file = set_.files[i];
      const FileReport &found = report_.files[i];
      if (found.state == FileState::complete || found.state == FileState::unreadable) continue;
      const bool is_renamed = found.state == FileState::renamed;
      if (options_.rename_only != 0 && !is_renamed) continue;
      if (stays(i)) {
        file.is_recoverable
            ? block(blocked_status_, i, " stays as it is")
            : block(TANDEM_ERROR_NOT_RECOVERABLE, i, " is not right, and the set has no recovery data for it");
        continue;
      }
      Work work{i, Way::rebuilt, {}};
      const Entry entry = tree_.find(file.name);
      work.old = entry.status();
      if (file.is_folder) {
        work.old ? block(TANDEM_ERROR_IO, i, " is no folder, and one must take its place") : folders_.push_back(i);
        continue;
      }
      if (work.old && !S_ISREG(work.old->st_mode) && !S_ISLNK(work.old->st_mode)) {
        block(TANDEM_ERROR_IO, i,
              S_ISDIR(work.old->st_mode) ? " is a folder, and a file must take its place"
                                         : " is no regular file, and one must take its place");
        continue;
      }
      check_old(i, work.old);
      if (options_.rename_only == 0 && can_be_in_place(i, work.old, entry)) {
        work.way = Way::in_place;
      } else if (is_renamed && can_be_renamed(found.found_as, entry)) {
        work.way = Way::renamed;
      } else {
        work.is_whole = is_renamed;
      }
      works_.push_back(work);
    }
    if (why_not_ != nullptr && works_.empty() && folders_.empty()) throw Error(*why_not_);
    if (std::ranges::any_of(works_, [&](const Work &work) { return lacks_slices(work.file); })) check_recovery();
  }
  bool lacks_slices(std::size_t file) const {
    const auto first = report_.contents.begin() + static_cast<std::ptrdiff_t>(set_.files[file].first_slice);
    return std::any_of(first, first + static_cast<std::ptrdiff_t>(set_.files[file].slice_count),
                       [&](std::uint32_t content) { return !report_.places[content]; });
  }
  // Whether a file that is not right stays so.
  bool stays(std::size_t file) const {
    const FileState state = report_.files[file].state;
    if (state == FileState::complete || state == FileState::renamed) return false;
    if (state == FileState::unreadable || options_.rename_only != 0) return true;
    return set_.files[file].is_recoverable ? why_not_ != nullptr && lacks_slices(file) : set_.files[file].bytes != 0;
  }

  void make_folders() {
    for (const std::size_t i : folders_) tree_.find(set_.files[i].name + "/.", true);
    tree_.keep_made(options_.no_sync == 0);
    for (const std::size_t i : folders_) {
      report_.files[i].state = FileState::complete;
      report_.files[i].is_repaired = true;
    }
  }

  // The file stays as it is, and the call fails when the others are repaired.
  void block(tandem_status status, std::size_t file, const char *why) {
    if (blocked_.empty()) blocked_status_ = status;
    if (++blocked_count_ <= kMostNamed) blocked_ += (blocked_.empty() ? "" : "; ") + report_.paths[file] + why;
  }

  // Also slices of files that cannot be read are unknown.
  void check_recovery() {
    std::uint64_t unread = 0;
    for (std::size_t i = 0; i < set_.files.size(); ++i)
      if (report_.files[i].state == FileState::unreadable) unread += set_.files[i].slice_count - report_.files[i].found;
    for (const std::uint32_t content : report_.contents) unknown_ += !report_.places[content];
    const std::uint64_t lost = unknown_ - unread;
    if (unknown_ > set_.recovery.size() && lost <= set_.recovery.size()) {
      throw NotComputed(TANDEM_ERROR_IO, lost, " slices are lost, and ", unread,
                        " slices cannot be read; the set has only ", set_.recovery.size(), " recovery slices");
    }
    if (lost > set_.recovery.size()) {
      throw NotComputed(TANDEM_ERROR_NOT_RECOVERABLE, lost, " slice", lost == 1 ? " is" : "s are",
                        " lost, and the set has only ", set_.recovery.size(), " recovery slice",
                        set_.recovery.size() == 1 ? "" : "s");
    }
    if (const std::size_t most = usable(set_.recovery).size(); unknown_ > most) {
      throw NotComputed(TANDEM_ERROR_NOT_RECOVERABLE, unknown_, " slices are lost, and only ", most, " of the ",
                        set_.recovery.size(),
                        " recovery slices can be used together: their exponents must lie in a window of ",
                        exponent_window(set_), ", 65536 less the ", set_.slice_count, " slices of the set");
    }
  }

  std::span<const RecoverySlice> usable(std::span<const RecoverySlice> all) const {
    return usable_recovery(all, exponent_window(set_), unknown_);
  }

  // Files with bytes that other files need, other than slices at their own places: they are not changed in place.
  void find_needed() {
    for (std::size_t i = 0; i < set_.files.size(); ++i) index_[report_.paths[i]] = i;
    for (const PacketFile &file : set_.packet_files)
      if (const auto status = status_of(file.path); status && file.packet_count != 0) packets_.insert(status->identity);
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      const FileReport &found = report_.files[i];
      if (found.state == FileState::complete) continue;
      if (found.state != FileState::unreadable) changing_.insert(report_.paths[i]);
      if (const auto look = report_.looks.find(report_.paths[i]); look != report_.looks.end())
        ++sharing_[{look->second.st_dev, look->second.st_ino}];
      if (found.state == FileState::renamed) needed_.insert(found.found_as);
      for (std::uint64_t slice = 0; slice < set_.files[i].slice_count; ++slice) {
        const auto &place = report_.places[report_.contents[set_.files[i].first_slice + slice]];
        if (place && !is_at_its_place(*place)) needed_.insert(*place->path);
      }
    }
    for (std::size_t i = 0; i < set_.files.size(); ++i) {
      if (report_.files[i].state != FileState::complete || set_.files[i].is_folder) continue;
      const struct stat &look = report_.looks.at(report_.paths[i]);
      if (const auto shared = sharing_.find({look.st_dev, look.st_ino}); shared != sharing_.end()) ++shared->second;
    }
    changing_.insert(needed_.begin(), needed_.end());
  }
  bool is_at_its_place(const Place &place) const {
    const auto index = index_.find(*place.path);
    return index != index_.end() && place.offset % set_.slice_bytes == 0 &&
           std::ranges::binary_search(report_.files[index->second].in_place, place.offset / set_.slice_bytes);
  }

  // Of this set. They may be the only ones: the old file stays, under another name.
  bool has_packets(const struct stat &old) const { return packets_.contains({old.st_dev, old.st_ino}); }
  void check_old(std::size_t file, const std::optional<struct stat> &old) const {
    const std::string &path = report_.paths[file];
    if (!old) {
      if (report_.looks.contains(path)) fail_changed(path);
    } else if (S_ISREG(old->st_mode)) {
      if (!report_.looks.contains(path)) fail_changed(path);
      // By a symbolic link. Its target would change, or go.
      if (old->st_nlink == 1 && sharing_.at({old->st_dev, old->st_ino}) != 1)
        fail(TANDEM_ERROR_UNSUPPORTED, path, " is also another file of the set");
    }
  }
  bool can_be_in_place(std::size_t file, const std::optional<struct stat> &old, const Entry &entry) const {
    return old && S_ISREG(old->st_mode) && old->st_nlink == 1 && !report_.files[file].in_place.empty() &&
           set_.files[file].is_recoverable && !needed_.contains(report_.paths[file]) && !has_packets(*old) &&
           entry.folder->open_file(entry.name, O_RDWR);
  }

  // Where a file lies that is not complete, or one that was searched. The first is reached through no link.
  Entry entry_at(const std::string &path) {
    if (const auto known = index_.find(path); known != index_.end()) return tree_.find(set_.files[known->second].name);
    return {std::make_shared<base::Folder>(base::folder_of(path)), base::name_of(path)};
  }
  // A "NAME.1" that was only searched stays: it may belong to a user. So does what lies outside of the base folder.
  bool can_be_renamed(const std::string &from, const Entry &to) {
    const auto own = index_.find(from);
    if (own == index_.end() && (std::ranges::find(report_.extra, from) == report_.extra.end() || !is_in_base(from)))
      return false;
    // Else nothing would find these slices: complete files are not searched.
    if (own != index_.end() && stays(own->second) && !report_.files[own->second].in_place.empty()) return false;
    const Entry source = entry_at(from);
    const auto status = source.status();
    return status && S_ISREG(status->st_mode) && can_move(*source.folder, to.folder ? *to.folder : tree_.base()) &&
           taken_.insert(from).second;
  }
  bool is_in_base(const std::string &path) const {
    std::error_code error;
    const auto base = std::filesystem::canonical(tree_.base().path(), error);
    const auto folder = std::filesystem::canonical(base::folder_of(path), error);
    return !error && !base.empty() && *folder.lexically_relative(base).begin() != "..";
  }
  // Of no file of the set. It is known by the name of the set.
  std::string other_temporary() const { return temporary_name(base::name_of(set_.packet_files.front().path)); }
  // Tries it with an empty file: two mounts of one file system look alike, and a folder may be read-only.
  bool can_move(const base::Folder &from, const base::Folder &to) {
    if (from.identity() == to.identity()) return true;
    const auto [known, is_new] = can_move_.try_emplace({from.identity(), to.identity()});
    if (!is_new) return known->second;
    const std::string name = other_temporary();
    if (!from.open_file(name, O_RDWR | O_CREAT | O_EXCL, 0600)) return false;
    known->second = renameat(from.descriptor(), name.c_str(), to.descriptor(), name.c_str()) == 0;
    (known->second ? to : from).remove(name);
    return known->second;
  }

  // ---- what is written

  void make_temporaries() {
    for (Work &work : works_) {
      const Entry entry = tree_.find(file_of(work).name, work.way != Way::in_place);
      if (work.way != Way::rebuilt) continue;
      const bool was_file = work.old && S_ISREG(work.old->st_mode);
      const std::string name = temporary_name(entry.name);
      base::Descriptor file = entry.folder->open_file(name, O_RDWR | O_CREAT | O_EXCL, was_file ? 0600 : 0666);
      if (!file) fail_io("create", entry.folder->path_of(name), errno);
      work.temporary = name;
      base::lock_file(file);
      if (!base::set_length(file.get(), file_of(work).bytes)) fail_io("write", entry.folder->path_of(name), errno);
      if (locked_.size() < kMostLocked) locked_.push_back(std::move(file));
    }
  }

  void list_jobs() {
    std::uint64_t stored = 0;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const Work &work = works_[i];
      const File &file = file_of(work);
      if (work.way == Way::renamed) continue;
      if (work.way == Way::rebuilt) meter_.add_total(file.bytes);  // to check it
      if (work.is_whole) {
        jobs_.push_back({i, 0, 0, file.bytes, Place{&found_of(work).found_as, 0, file.bytes}, 0});
        meter_.add_total(2 * file.bytes);
        continue;
      }
      for (std::uint64_t slice = 0; slice < file.slice_count; ++slice) {
        if (work.way == Way::in_place && std::ranges::binary_search(found_of(work).in_place, slice)) continue;
        const auto &place = report_.places[report_.contents[file.first_slice + slice]];
        const std::uint64_t bytes = file.bytes_of_slice(slice, set_.slice_bytes);
        jobs_.push_back({i, file.first_slice + slice, slice * set_.slice_bytes, bytes, place, stored});
        if (place) meter_.add_total(2 * bytes);
        if (work.way != Way::in_place) continue;
        stored += bytes;
        meter_.add_total(2 * bytes);  // to check and to write it
      }
    }
    const std::uint64_t most = options_.memory_bytes != 0 ? options_.memory_bytes : kDefaultMemory;
    column_memory_ = most - store_.open(stored, most / 2, tree_.base(), other_temporary());
  }

  int open_new(const Work &work, Opened &opened) {
    return opened.get(&work, path_of(work), [&] {
      const std::lock_guard lock(tree_mutex_);
      return entry_of(work).folder->open_file(work.temporary, O_RDWR);
    });
  }
  void write(const Job &job, std::uint64_t at, const std::byte *bytes, std::size_t count, Opened &opened) {
    if (at >= job.bytes) return;
    count = std::min<std::uint64_t>(count, job.bytes - at);
    const Work &work = works_[job.work];
    if (work.way == Way::in_place) return store_.write(job.stored_at + at, bytes, count);
    const int file = open_new(work, opened);
    if (!base::write_at(file, bytes, count, job.offset + at)) fail_io("write", path_of(work), errno);
  }
  static void read(const Place &place, std::uint64_t at, void *into, std::size_t count, Opened &opened) {
    if (!read_place(place, at, into, count, opened)) fail_changed(*place.path);
  }

  // A file system may share the blocks of both files. What comes of it is checked.
  bool clone(const Job &job, std::uint64_t at, std::size_t count, Opened &from, Opened &to) {
    const Work &work = works_[job.work];
    if (!work.is_whole) return false;
    const std::string &path = *job.from->path;
    const int source = from.get(&path, path, [&] { return open_regular(path); }), target = open_new(work, to);
    auto source_at = static_cast<off_t>(at), target_at = source_at;
    return copy_file_range(source, &source_at, target, &target_at, count, 0) == static_cast<ssize_t>(count);
  }
  void copy() {
    std::vector<const Job *> copies;
    for (const Job &job : jobs_)
      if (job.from) copies.push_back(&job);
    run_groups(copies.size(), crew_, [&](std::size_t first, std::size_t end) {
      Bytes piece(kCopyPiece);
      Opened from, to;
      for (std::size_t i = first; i < end; ++i) {
        const Job &job = *copies[i];
        for (std::uint64_t at = 0; at < job.bytes; at += kCopyPiece) {
          const std::size_t count = std::min<std::uint64_t>(kCopyPiece, job.bytes - at);
          if (!clone(job, at, count, from, to)) {
            read(*job.from, at, piece.data(), count, from);
            write(job, at, piece.data(), count, to);
          }
          meter_.done(2 * count);
        }
      }
    });
  }

  // ---- lost slices

  // left_out: exponents.
  void compute(std::span<const std::uint32_t> left_out = {}) {
    std::vector<const Job *> lost;
    for (const Job &job : jobs_)
      if (!job.from) lost.push_back(&job);
    if (lost.empty()) return;
    const std::size_t k = set_.slice_count;
    std::vector<RecoverySlice> left = set_.recovery;
    std::erase_if(
        left, [&](const RecoverySlice &each) { return std::ranges::find(left_out, each.exponent) != left_out.end(); });
    const auto recovery = usable(left);
    if (recovery.size() < unknown_)
      throw NotComputed(TANDEM_ERROR_NOT_RECOVERABLE, "the other recovery slices are too few");
    const std::uint32_t first_exponent = set_.is_par1 ? 0 : recovery.front().exponent;
    const std::uint32_t exponents = recovery.back().exponent - first_exponent + 1;
    const CodecOwner codec = make_codec(set_.is_par1, k, first_exponent, exponents);

    std::vector<std::uint8_t> present(k + exponents), wanted(present.size());
    std::vector<std::optional<Place>> places(present.size());
    for (std::size_t i = 0; i < k; ++i) places[i] = report_.places[report_.contents[i]];
    for (const RecoverySlice &each : recovery)
      places[k + each.exponent - first_exponent] =
          Place{&set_.packet_files[each.packet_file].path, each.offset, set_.slice_bytes};
    for (std::size_t i = 0; i < places.size(); ++i) present[i] = places[i].has_value();
    for (const Job *job : lost) wanted[job->slice] = 1;
    auto plan_options = base::sized<tandem_plan_options>();
    plan_options.operation = TANDEM_OPERATION_DECODE;
    plan_options.present = present.data();
    plan_options.wanted = wanted.data();
    plan_options.cancelled = [](void *meter) -> std::int32_t {
      return static_cast<base::Meter *>(meter)->shall_stop();
    };
    plan_options.cancelled_user = &meter_;
    tandem_plan *plan = nullptr;
    const tandem_status status = tandem_plan_create(context_, codec.get(), &plan_options, &plan);
    if (status == TANDEM_ERROR_NOT_RECOVERABLE)
      throw NotComputed(status, unknown_, " slices are lost, and the equations of the ", recovery.size(),
                        " recovery slices do not determine them: their exponents have gaps");
    if (status == TANDEM_ERROR_TOO_LARGE)
      throw NotComputed(TANDEM_ERROR_NOT_RECOVERABLE, unknown_,
                        " slices are lost, and the exponents of the recovery slices ",
                        "have too many gaps: the equations would take too long");
    check(status);
    const std::unique_ptr<tandem_plan, void (*)(tandem_plan *)> plan_owner(plan, tandem_plan_destroy);
    auto info = base::sized<tandem_plan_info>();
    check(tandem_plan_query(plan, &info));

    std::vector<std::size_t> inputs;
    used_.clear();
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (info.shards_read[i] == 0) continue;
      inputs.push_back(i);
      if (i < k) continue;
      used_.push_back(first_exponent + static_cast<std::uint32_t>(i - k));
      used_files_.insert(*places[i]->path);
    }
    meter_.add_total((inputs.size() + lost.size()) * set_.slice_bytes);
    std::vector<void *> shards(places.size());
    const auto read_column = [&](const Column &column, std::size_t first, std::size_t end) {
      Opened opened;
      for (std::size_t i = first; i < end; ++i) {
        read(*places[inputs[i]], column.offset, column.inputs[i], column.bytes, opened);
        meter_.done(column.bytes);
      }
    };
    const auto decode = [&](const Column &column) {
      for (std::size_t i = 0; i < inputs.size(); ++i) shards[inputs[i]] = column.inputs[i];
      for (std::size_t i = 0; i < lost.size(); ++i) shards[lost[i]->slice] = column.outputs[i];
      auto arguments = base::sized<tandem_plan_arguments>();
      arguments.shards = shards.data();
      arguments.shard_bytes = column.bytes;
      check(tandem_plan_run(plan, &arguments, nullptr));
    };
    const auto write_column = [&](const Column &column, std::size_t first, std::size_t end) {
      Opened opened;
      for (std::size_t i = first; i < end; ++i) {
        write(*lost[i], column.offset, static_cast<const std::byte *>(column.outputs[i]), column.bytes, opened);
        meter_.done(column.bytes);
      }
    };
    code_columns(inputs.size(), lost.size(), set_.slice_bytes, column_memory_, crew_, read_column, decode,
                 write_column);
  }

  // ---- checks

  // A wrong recovery slice makes nearly all computed slices wrong, and does not show itself. So groups of those that
  // were used are left out in turn, as many as there are others in their place.
  void check_results() {
    constexpr std::size_t kMostTries = 100;
    const Work *wrong = find_wrong();
    const std::vector<std::uint32_t> used = used_;
    const std::size_t others = set_.recovery.size() - used.size();
    if (wrong != nullptr && others != 0) check_unchanged(true);
    for (std::size_t at = 0; wrong != nullptr && at < std::min(used.size(), kMostTries * others); at += others) {
      try {
        compute(std::span(used).subspan(at, std::min(others, used.size() - at)));
      } catch (const Error &error) {
        if (error.status() != TANDEM_ERROR_NOT_RECOVERABLE) throw;
        continue;
      }
      for (const Job &job : jobs_) meter_.add_total(job.bytes);
      wrong = find_wrong();
    }
    if (wrong == nullptr) return;
    std::string suspects;
    for (const std::string &file : used_files_) suspects += (suspects.empty() ? "a recovery slice of " : ", ") + file;
    throw NotComputed(TANDEM_ERROR_DAMAGED, "what was made for ", path_of(*wrong), " is wrong: ", suspects,
                      suspects.empty() ? "" : " is, or ", "a file has changed since it was verified");
  }
  const Work *find_wrong() {
    std::vector<std::string> paths(works_.size());
    std::vector<Range> ranges;
    std::vector<std::pair<const Work *, Digest>> expected;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const Work &work = works_[i];
      const File &file = file_of(work);
      if (work.way != Way::rebuilt) continue;
      paths[i] = entry_of(work).folder->path_of(work.temporary);
      if (file.sums.empty()) {
        ranges.push_back({&paths[i], 0, file.bytes});
        expected.emplace_back(&work, file.md5);
      }
      for (std::uint64_t slice = 0; slice < file.sums.size(); ++slice) {
        ranges.push_back({&paths[i], slice * set_.slice_bytes, file.bytes_of_slice(slice, set_.slice_bytes),
                          file.zeros_of_slice(slice, set_.slice_bytes)});
        expected.emplace_back(&work, file.md5_of_slice(slice, set_.slice_bytes));
      }
    }
    sum_ranges(ranges, false, crew_, meter_.counter());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (is_unreadable(ranges[i].error)) fail_io("read", *ranges[i].path, ranges[i].error);
      if (ranges[i].error != 0 || ranges[i].sum.md5 != expected[i].second) return expected[i].first;
    }
    return find_wrong_in_store();
  }
  const Work *find_wrong_in_store() {
    std::vector<const Job *> stored;
    std::vector<Range> ranges;
    for (const Job &job : jobs_) {
      if (works_[job.work].way != Way::in_place) continue;
      stored.push_back(&job);
      ranges.push_back({&path_of(works_[job.work]), 0, job.bytes, set_.slice_bytes - job.bytes});
    }
    run_groups(stored.size(), crew_, [&](std::size_t first, std::size_t end) {
      const auto read = [&](std::size_t i, std::byte *into, std::size_t bytes, std::uint64_t at) {
        store_.read(stored[first + i]->stored_at + at, into, bytes);
        return static_cast<std::int64_t>(bytes);
      };
      sum_read(std::span(ranges).subspan(first, end - first), false, meter_.counter(), read);
    });
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const Work &work = works_[stored[i]->work];
      if (ranges[i].sum.md5 != file_of(work).sums[stored[i]->slice - file_of(work).first_slice].md5) return &work;
    }
    return nullptr;
  }

  // ---- changes

  void sync(const base::Descriptor &file, const std::string &path) const {
    if (options_.no_sync == 0 && fsync(file.get()) != 0) fail_io("sync", path, errno);
  }
  void finish_temporaries() {
    for (const Work &work : works_) {
      if (work.way != Way::rebuilt) continue;
      const Entry entry = entry_of(work);
      const std::string path = entry.folder->path_of(work.temporary);
      const base::Descriptor file = entry.folder->open_file(work.temporary, O_RDWR);
      if (!file) fail_io("open", path, errno);
      if (work.old && S_ISREG(work.old->st_mode)) {
        keep_status(file.get(), *work.old, path);
      }
      sync(file, path);
    }
  }

  base::Descriptor open_in_place(const Work &work, const struct stat &before) {
    base::Descriptor file = entry_of(work).folder->open_file(entry_of(work).name, O_RDWR);
    if (!file) fail_io("open", path_of(work), errno);
    if (!base::unchanged(before, look_at(file, work))) fail_changed(path_of(work));
    return file;
  }
  struct stat look_at(const base::Descriptor &file, const Work &work) const {
    struct stat status;
    if (fstat(file.get(), &status) != 0) fail_io("look at", path_of(work), errno);
    return status;
  }

  // Space for everything that is written in place: a full disk is noticed before the first change.
  void reserve() {
    std::size_t job = 0;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      Work &work = works_[i];
      if (work.way != Way::in_place) continue;
      const base::Descriptor file = open_in_place(work, *work.old);
      work.reserved = work.old;
      while (job < jobs_.size() && jobs_[job].work < i) ++job;
      for (; job < jobs_.size() && jobs_[job].work == i; ++job) {
        const int error = base::allocate(file.get(), jobs_[job].offset, jobs_[job].bytes) ? 0 : errno;
        work.reserved = look_at(file, work);
        if (error != 0) fail_io("write", path_of(work), error);
      }
    }
  }
  void restore_lengths() noexcept {
    for (const Work &work : works_) {
      if (!work.reserved) continue;
      try {
        const base::Descriptor file = open_in_place(work, *work.reserved);
        base::set_length(file.get(), static_cast<std::uint64_t>(work.old->st_size));
        keep_times(file.get(), *work.old, path_of(work));
      } catch (...) {  // zeros at its end, or another program's file
      }
    }
  }

  void write_in_place() {
    Bytes piece(kCopyPiece);
    std::size_t job = 0;
    for (std::size_t i = 0; i < works_.size(); ++i) {
      Work &work = works_[i];
      if (work.way != Way::in_place) continue;
      const base::Descriptor file = open_in_place(work, *work.reserved);
      work.reserved.reset();
      while (job < jobs_.size() && jobs_[job].work < i) ++job;
      for (; job < jobs_.size() && jobs_[job].work == i; ++job) {
        for (std::uint64_t at = 0; at < jobs_[job].bytes; at += kCopyPiece) {
          const std::size_t count = std::min<std::uint64_t>(kCopyPiece, jobs_[job].bytes - at);
          store_.read(jobs_[job].stored_at + at, piece.data(), count);
          if (!base::write_at(file.get(), piece.data(), count, jobs_[job].offset + at))
            fail_io("write", path_of(work), errno);
          meter_.done(count);
        }
      }
      if (!base::set_length(file.get(), file_of(work).bytes)) fail_io("write", path_of(work), errno);
      keep_times(file.get(), *work.old, path_of(work));
      sync(file, path_of(work));
      if (!is_same(look_at(file, work), entry_of(work).status())) fail_changed(path_of(work));
    }
  }
  // But for the time of the last change: a rename is one.
  static bool is_same(const struct stat &before, std::optional<struct stat> now) {
    if (now) now->st_ctim = before.st_ctim;
    return now && base::unchanged(before, *now);
  }

  // The names of old files that make room.
  void choose_asides() {
    std::set<std::string> chosen;  // paths
    for (Work &work : works_) {
      if (work.way == Way::in_place || !work.old) continue;
      const Entry entry = entry_of(work);
      const std::string folder = path_of(work).substr(0, path_of(work).size() - entry.name.size());
      for (std::uint64_t number = 1; work.aside.empty(); ++number)
        if (const std::string name = text(replaced_name(entry.name), ".", number);
            !entry.folder->has(name) && !index_.contains(folder + name) && chosen.insert(folder + name).second)
          work.aside = name;
    }
  }

  // All old files make room before the first new one gets its name, and are removed when all have theirs. So everything
  // that was found exists under some name at each moment.
  void rename() {
    std::map<std::string, const Work *> moved;  // paths of old files
    try {
      for (const Work &work : works_) {
        if (work.aside.empty()) continue;
        const Entry entry = entry_of(work);
        entry.folder->rename(entry.name, work.aside, false);
        moved[path_of(work)] = &work;
        if (!is_same(*work.old, Entry{entry.folder, work.aside}.status())) fail_changed(path_of(work));
      }
      put_in_places(moved);
    } catch (...) {
      for (std::size_t i = works_.size(); i-- != 0;) {
        if (!moved.contains(path_of(works_[i]))) continue;
        try {
          const Entry entry = entry_of(works_[i]);
          entry.folder->rename(works_[i].aside, entry.name, false);
        } catch (...) {  // it keeps its new name
        }
      }
      throw;
    }
    if (options_.keep_replaced != 0 || !is_complete_now()) return;
    for (const auto &[path, work] : moved)
      if (!has_packets(*work->old)) entry_of(*work).folder->remove(work->aside);
  }
  // Removes from `moved` what gets another file's name.
  void put_in_places(std::map<std::string, const Work *> &moved) {
    std::set<std::string> names, others;
    for (Work &work : works_) {
      if (work.way == Way::in_place) continue;
      const Entry entry = entry_of(work);
      names.insert(file_of(work).name);
      if (work.way == Way::rebuilt) {
        entry.folder->rename(work.temporary, entry.name, false);
        work.temporary.clear();
        continue;
      }
      const std::string &found_as = found_of(work).found_as;
      Entry from = entry_at(found_as);
      const auto other = moved.find(found_as);
      if (other != moved.end()) from.name = other->second->aside;
      from.folder->rename(from.name, *entry.folder, entry.name, false);
      if (!is_same(report_.looks.at(found_as), entry.status())) {
        entry.folder->rename(entry.name, *from.folder, from.name, false);
        fail_changed(found_as);
      }
      if (other != moved.end()) moved.erase(other);
      if (const auto known = index_.find(found_as); known != index_.end())
        names.insert(set_.files[known->second].name);
      else
        others.insert(base::folder_of(found_as));
    }
    sync_folders(names, others);
  }
  void sync_folders(const std::set<std::string> &names, const std::set<std::string> &others) {
    if (options_.no_sync != 0) return;
    for (const std::string &folder : others) base::Folder(folder).sync();
    std::set<std::string> done;
    for (const std::string &name : names)
      if (done.insert(base::folder_of(name)).second) tree_.find(name).folder->sync();
    tree_.keep_made(true);
  }
  bool is_complete_now() const {
    const auto complete = std::ranges::count(report_.files, FileState::complete, &FileReport::state);
    return complete + std::ssize(works_) == std::ssize(report_.files);
  }

  void update_report() {
    const bool is_complete = is_complete_now();
    for (const Work &work : works_) {
      FileReport &found = found_of(work);
      found.is_repaired = true;
      found.state = FileState::complete;
      found.bytes = file_of(work).bytes;
      found.found_as.clear();
      if (is_complete) found.found = file_of(work).slice_count;
    }
    if (is_complete) {
      report_.found_slices = set_.slice_count;
      return;
    }
    // Files have other names now.
    std::vector<bool> repaired;
    for (const FileReport &found : report_.files) repaired.push_back(found.is_repaired);
    report_ = verify(Set(set_), std::string(report_.folder), std::vector(report_.extra), report_.search_distance, crew_,
                     meter_);
    for (std::size_t i = 0; i < repaired.size(); ++i) report_.files[i].is_repaired = repaired[i];
  }

  const NotComputed *const why_not_;
  tandem_context *const context_;
  Report &report_;
  const Set &set_;
  const tandem_par2_repair_options &options_;
  base::Crew &crew_;
  base::Meter &meter_;
  Tree tree_;
  std::mutex tree_mutex_;
  std::map<Identity, std::size_t> sharing_;                 // names of files that are not complete
  std::set<Identity> packets_;                              // packet files of the set
  std::set<std::string> needed_, taken_, changing_;         // paths
  std::map<std::pair<Identity, Identity>, bool> can_move_;  // from folder to folder
  std::map<std::string, std::size_t> index_;                // of the set's paths
  std::vector<Work> works_;
  std::vector<std::size_t> folders_;      // to be made
  std::vector<Job> jobs_;                 // in the order of works
  std::vector<base::Descriptor> locked_;  // temporaries
  Store store_;
  std::uint64_t column_memory_ = 0;
  std::uint64_t unknown_ = 0;         // slices
  std::vector<std::uint32_t> used_;   // exponents of recovery slices
  std::set<std::string> used_files_;  // that have them
  std::string blocked_;
  tandem_status blocked_status_ = TANDEM_OK;
  std::size_t blocked_count_ = 0;
  bool is_done_ = false;
};

}  // namespace

void repair(tandem_context *context, Report &report, const tandem_par2_repair_options &options, base::Crew &crew,
            base::Meter &meter) {
  if (report.scope != TANDEM_PAR2_ALL)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "the report is of packets or descriptions alone");
  if (options.packets != 0 && options.rename_only != 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "packets and rename_only exclude each other");
  if (options.packets != 0 && report.set.is_par1)
    fail(TANDEM_ERROR_UNSUPPORTED, "packet files of PAR 1.0 are not made anew");
  try {
    Repair(context, report, options, crew, meter).run();
  } catch (const NotComputed &error) {
    Repair(context, report, options, crew, meter, &error).run();
  }
  if (options.packets != 0) repair_packets(context, report, options, crew, meter);
}

}  // namespace tandem::par2
