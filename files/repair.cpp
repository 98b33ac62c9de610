// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/calls.hpp"
#include "files/repair_steps.hpp"
#include "files/unfinished.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

// ---- names ----

// Files that are written anew: first under temporary names.
class NewFiles {
 public:
  explicit NewFiles(RepairTask &task) : task_(task) {}
  ~NewFiles() {
    for (Target &target : task_.targets) target.pending.reset();
    std::for_each(made_.rbegin(), made_.rend(),
                  [](const std::string &folder) { rmdir(folder.c_str()); });  // a folder with a file in it stays
  }
  NewFiles(const NewFiles &) = delete;
  NewFiles &operator=(const NewFiles &) = delete;

  void make() {
    wait_.began = Clock::now();
    task_.attempt_each([this](Target &target) {
      if (target.action == TANDEM_FILES_REBUILD) make(target);
    });
  }

  // When their successors are on the disk.
  void remove_moved() {
    wait_.began = Clock::now();
    task_.attempt_each([&](Target &target) {
      if (target.moved == kNoFile || target.left_count != 0) return;
      const ShardFile &old = task_.set.files[target.moved];
      const auto folder = std::make_shared<Folder>(folder_of(old.path));
      const FoldersLock lock({folder}, wait_);
      if (!is_still_there(*folder, old)) return;
      folder->remove(name_of(old.path));
      if (task_.options.no_sync == 0) folder->sync();
    });
  }

  void give_names(bool is_locked) {
    wait_.began = Clock::now();
    task_.attempt_each([&](Target &target) {
      if (target.pending) give_name(target, is_locked);
    });
    // A shard in a new folder is on the disk when the folder's own name is.
    if (task_.options.no_sync != 0) return;
    for (const std::string &folder : made_) Folder(folder + "/..").sync();
  }

 private:
  void make(Target &target) {
    if (target.file == kNoFile) make_folder(target.place.folder, made_);
    target.folder = folders_[add_folder(folders_, target.place.folder)];
    const FoldersLock lock({target.folder}, wait_);
    const std::string &model = task_.set.files[target.file != kNoFile ? target.file : 0].path;
    struct stat status;
    if (stat(model.c_str(), &status) != 0) fail_io("stat", model, errno);
    target.pending.emplace(target.folder, new_temporary_name(), status.st_mode & 0777);
    // Without the right to change the owner, the file keeps this process' owner.
    [[maybe_unused]] const int owned = fchown(target.pending->descriptor(), status.st_uid, status.st_gid);
    if (!set_length(target.pending->descriptor(), task_.header.shard_file_bytes()))
      fail_io("extend", target.pending->path(), errno);
  }

  void give_name(Target &target, bool is_locked) {
    const FoldersLock lock(is_locked ? Folders() : Folders{target.folder}, wait_);
    if (target.file != kNoFile && !is_still_there(*target.folder, task_.set.files[target.file]))
      fail(TANDEM_ERROR_IO, target.path(), " was replaced since it was read; the new file is left alone");
    target.pending->rename(target.place.name, target.file != kNoFile || target.place.replaces,
                           task_.options.no_sync != 0);
  }

  // A newer set may have this name by now, or the file may have been removed with its set.
  static bool is_still_there(const Folder &folder, const ShardFile &shard) {
    struct stat status;
    return fstatat(folder.descriptor(), name_of(shard.path).c_str(), &status, 0) == 0 &&
           std::pair(status.st_dev, status.st_ino) == shard.identity &&
           static_cast<std::uint64_t>(status.st_size) == shard.file_bytes;
  }

  RepairTask &task_;
  std::vector<std::string> made_;  // folders
  Folders folders_;
  LockWait wait_ = lock_wait(task_.options);  // for locks of folders, one after the other
};

// ---- several processes ----

void join(const RepairTask &task, const std::string &temporary, Target &target) {
  if (target.action == TANDEM_FILES_REBUILD) {
    target.opened = Descriptor(open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!target.opened) fail_io("open", temporary, errno);
  } else if (!open_in_place(task.set.files[target.file], &target.opened)) {
    fail(TANDEM_ERROR_IO, "process 0 can write to ", target.path(), ", but this process cannot");
  }
}

// Process 0 has planned, and made the files that are written anew. The others open the files that it names.
void share_targets(RepairTask &task) {
  if (task.team.is_alone()) return;
  Words leading = task.team.broadcast([&](Words &plan) {
    plan.put(task.crowded_count);
    plan.put(task.targets.size());
    for (const Target &target : task.targets) {
      plan.put(target.file);
      plan.put(target.moved);
      plan.put(target.shard);
      plan.put(static_cast<std::uint64_t>(target.action));
      plan.put(target.place.folder);
      plan.put(target.place.name);
      plan.put(target.pending ? target.pending->path() : "");
      plan.put(target.failure);
    }
  });
  task.team.together([&] {
    if (task.team.leads()) return;
    task.crowded_count = leading.number();
    for (std::uint64_t left = leading.number(); left != 0; --left) {
      Target &target = task.targets.emplace_back(task.most_ranges());
      target.file = leading.number();
      target.moved = leading.number();
      target.shard = static_cast<std::uint32_t>(leading.number());
      target.action = static_cast<std::int32_t>(leading.number());
      target.place.folder = leading.text();
      target.place.name = leading.text();
      const std::string temporary = leading.text();
      target.failure = leading.text();
      if (target.failure.empty()) target.failed_process = task.team.process();
      if (task.options.dry_run == 0) task.attempt(target, [&](Target &each) { join(task, temporary, each); });
    }
  });
}

// A file that failed in one process is left alone in all.
void share_failures(RepairTask &task) {
  task.team.merge(
      [&](Words &words) {
        for (const Target &target : task.targets) {
          words.put(target.failed_process);
          words.put(target.failure);
        }
      },
      [&] {
        for (Target &target : task.targets) target.failure.clear();
      },
      [&](Words &theirs) {
        for (Target &target : task.targets) {
          const auto process = static_cast<std::uint32_t>(theirs.number());
          const std::string failure = theirs.text();
          if (!target.failure.empty() || failure.empty()) continue;
          target.failure = failure;
          target.failed_process = process;
        }
      });
}

// The combined work of all processes.
void add_up(RepairTask &task) {
  task.read_bytes += task.source.reader().read_bytes();
  for (Target &target : task.targets) target.written_count = target.written.count();
  task.team.merge(
      [&](Words &words) {
        words.put(task.read_bytes);
        words.put(task.written_bytes);
        for (const Target &target : task.targets) {
          words.put(target.written_count);
          words.put(target.left_count);
        }
      },
      [&] {
        task.read_bytes = task.written_bytes = 0;
        for (Target &target : task.targets) target.written_count = target.left_count = 0;
      },
      [&](Words &theirs) {
        task.read_bytes += theirs.number();
        task.written_bytes += theirs.number();
        for (Target &target : task.targets) {
          target.written_count += theirs.number();
          target.left_count += theirs.number();
        }
      });
}

// ---- the report ----

std::uint64_t left_in(const RepairTask &task, const Target &target) {
  const Findings &findings = task.findings;
  // Blocks outside every file were not tried.
  if (task.options.dry_run == 0 && target.failure.empty())
    return target.left_count + task.header.stripe_count() - RangeList(findings.readable).count();
  if (task.options.dry_run != 0)
    return target.file != kNoFile ? findings.lost_count[target.file] : findings.lost.count();
  return target.file != kNoFile ? findings.bad[target.file].count() : 0;
}

void report_all(const RepairTask &task) {
  const auto target_of = [&](const Finding &finding) {
    return std::ranges::find_if(task.targets, [&](const Target &target) {
      return target.file == finding.file && target.shard == finding.report.index && target.moved == kNoFile;
    });
  };
  const std::uint32_t sure_count = task.header.k + least_m(task.set);  // resize makes or drops the others
  std::string path;
  report(task.set, task.findings, task.options.report, task.options.report_user, [&](Finding &finding) {
    finding.report.left_bad_count = finding.report.bad_block_count;
    const auto target = target_of(finding);
    if (target != task.targets.end() && target->failure.empty()) {
      finding.report.action = target->action;
      finding.report.left_bad_count = left_in(task, *target);
      path = target->path();
      if (finding.file == kNoFile) finding.report.path = path.c_str();
    } else if (finding.file == kNoFile
                   ? finding.report.index < sure_count
                   : (finding.report.condition & ~TANDEM_FILES_OTHER_M) != 0 || finding.report.bad_block_count != 0) {
      finding.report.action = TANDEM_FILES_GIVE_UP;
    }
  });
}

tandem_files_repair_result result_of(const RepairTask &task) {
  const Findings &findings = task.findings;
  const bool dry_run = task.options.dry_run != 0;
  tandem_files_repair_result result = {};
  result.left_shard_count = task.header.shard_count() - task.set.shard_count;
  for (const Ranges &bad : findings.bad) result.left_block_count += bad.count();
  bool all_done = std::ranges::none_of(
      task.set.files, [](const ShardFile &file) { return (file.condition & TANDEM_FILES_OTHER_M) != 0; });
  for (const Target &target : task.targets) {
    all_done = all_done && !dry_run && target.failure.empty();
    if (!target.failure.empty()) continue;
    if (target.moved != kNoFile) {
      ++result.moved_file_count;
      continue;
    }
    const std::uint64_t left = left_in(task, target);
    const std::uint64_t bad = target.file != kNoFile ? findings.bad[target.file].count() : 0;
    if (target.file == kNoFile) --result.left_shard_count;
    result.left_block_count += left - bad;
    if (target.action == TANDEM_FILES_MEND) {
      ++result.mended_file_count;
      result.mended_block_count += dry_run ? bad - left : target.written_count;
    } else {
      ++result.rebuilt_file_count;
    }
  }
  result.lost_stripe_count = findings.lost.count();
  const bool is_whole = all_done && result.left_block_count == 0 && result.left_shard_count == 0;
  result.state = !findings.recoverable ? TANDEM_FILES_LOST : is_whole ? TANDEM_FILES_INTACT : TANDEM_FILES_RECOVERABLE;
  result.read_bytes = findings.read_bytes + task.read_bytes;
  result.written_bytes = task.written_bytes;
  result.crowded_folder_count = static_cast<std::uint32_t>(task.crowded_count);
  return result;
}

// Throws if this process was the first to fail.
void check_failures(const RepairTask &task) {
  const auto has_failed = [](const Target &target) { return !target.failure.empty(); };
  const auto first = std::ranges::find_if(task.targets, has_failed);
  if (first == task.targets.end() || first->failed_process != task.team.process()) return;
  const auto more = std::count_if(first + 1, task.targets.end(), has_failed);
  fail(TANDEM_ERROR_IO, more == 0
                            ? first->failure
                            : base::text(first->failure, " (and ", more, " more shard files could not be mended)"));
}

// ---- the call ----

tandem_files_repair_result run(RepairTask &task) {
  task.findings = inspect(task.context, task.set, reading_options(task.options), task.team);
  // Padding of the last stripe is known, even if no file reaches that stripe.
  const std::uint64_t count = task.header.stripe_count();
  if (count != 0 && task.header.is_padding(task.header.k - 1, count - 1)) task.findings.readable.add(count - 1, count);
  task.team.together([&] {
    check_all_read(task.search, task.set, task.findings.recoverable);
    if (task.team.leads()) plan_repair(task);
  });
  write_targets(task);
  return tell(task);
}

// Its encode did not, and the missing shards are made now.
void finish_set(const RepairTask &task) {
  std::vector<std::string> paths = task.search.folders;
  for (const Target &target : task.targets) paths.push_back(target.place.folder);
  for (const std::string &note : recover(paths, CleanUp::real, lock_wait(task.options)).notes) task.note(note);
}

}  // namespace

void write_targets(RepairTask &task, const std::function<void()> &lock_all) {
  const Team &team = task.team;
  NewFiles new_files(task);
  const auto step = [&](const auto &work) {
    team.together(work);
    share_failures(task);
    if (lock_all) team.together([&] { check_failures(task); });
  };
  const bool is_dry = task.options.dry_run != 0;
  team.together([&] {
    if (team.leads() && !is_dry) new_files.make();
  });
  share_targets(task);
  if (is_dry || task.targets.empty()) return;
  if (lock_all) check_failures(task);
  step([&] { write_blocks(task); });
  step([&] {
    if (team.leads()) write_new_records(task);
    sync_targets(task);
    read_back(task);
  });
  step([&] {
    if (lock_all) lock_all();
    if (team.leads()) new_files.give_names(static_cast<bool>(lock_all));
  });
  step([&] {
    if (team.leads()) mend_records(task);
  });
  step([&] {
    if (team.leads()) new_files.remove_moved();
  });
}

tandem_files_repair_result tell(RepairTask &task) {
  add_up(task);
  tandem_files_repair_result result = {};
  task.team.together([&] {
    result = result_of(task);
    if (task.team.leads()) report_all(task);
    check_failures(task);
  });
  return result;
}

tandem_files_verify_options reading_options(const tandem_files_repair_options &options) {
  tandem_files_verify_options reading = {};
  reading.thread_count = options.thread_count;
  reading.progress = options.progress;
  reading.progress_user = options.progress_user;
  return reading;
}

LockWait lock_wait(const tandem_files_repair_options &options) {
  LockWait wait{.check_cancelled = [&options] {
    if (options.progress != nullptr && options.progress(options.progress_user, 0, 0) != 0)
      fail(TANDEM_ERROR_CANCELLED, "cancelled");
  }};
  if (options.lock_wait_seconds != 0) wait.seconds = options.lock_wait_seconds;
  wait.began = Clock::now();
  return wait;
}

void check_placement(const tandem_files_repair_options &options) {
  if (options.folders != nullptr && options.new_folders != nullptr)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         "folders and new_folders are both given; with folders, every missing shard goes there");
}

tandem_files_repair_result repair(tandem_context *context, const Search &search,
                                  const tandem_files_repair_options &options) {
  const Clock::time_point started = Clock::now();
  check_placement(options);
  const Team team(options.team);
  const FoundSet &set = choose_set(search, options.set_id_prefix, team);
  std::unique_ptr<RepairTask> task;
  team.together([&] { task.reset(new RepairTask{context, search, set, options, team}); });
  tandem_files_repair_result result = run(*task);
  team.together([&] {
    const bool has_temporaries = std::ranges::any_of(
        set.files, [](const ShardFile &file) { return parse_own_name(name_of(file.path)).has_value(); });
    if (has_temporaries && team.leads() && options.dry_run == 0 && result.state == TANDEM_FILES_INTACT)
      finish_set(*task);
  });
  result.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return result;
}

}  // namespace tandem::files
