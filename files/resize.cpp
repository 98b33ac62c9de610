// SPDX-License-Identifier: Apache-2.0
// Changes m of a set in place (docs/format.md, section 9). New shards are missing shards of a larger set, and are
// written as repair writes them.
#include "files/resize.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/text.hpp"
#include "files/commit.hpp"
#include "files/error.hpp"
#include "files/repair.hpp"
#include "files/repair_steps.hpp"
#include "tandem/tools.h"

namespace tandem::files {
namespace {

// given_folder_count: of folders for new shards; 0: they go to those of the set.
SetHeader resized(const SetHeader &header, std::uint32_t m, std::size_t given_folder_count) {
  SetHeader goal = header;
  goal.m = m;
  if (m == header.m) return goal;
  if (!can_be_resized(header.matrix))
    fail(TANDEM_ERROR_UNSUPPORTED,
         base::text("the rows of matrix ", tandem_matrix_name(header.matrix), " depend on m, so parity for m = ", m,
                    " has other bytes than parity for m = ", header.m, ": decode the set and encode it again"));
  if (m > kMaxShardCount - header.k)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         base::text("k = ", header.k, " and m = ", m, "; k + m is at most ", kMaxShardCount));
  // Each shard has a folder of its own, as before.
  const bool are_new_apart = m > header.m && m - header.m <= given_folder_count;
  if (goal.folder_count > goal.shard_count() || (goal.folder_count == header.shard_count() && are_new_apart))
    goal.folder_count = goal.shard_count();
  if (const auto why = out_of_limits(goal)) fail(TANDEM_ERROR_INVALID_ARGUMENT, *why);
  make_codec(goal, !any_k_suffice(header));
  return goal;
}

// The files of the shards that stay, as files of the resized set.
FoundSet goal_of(const FoundSet &set, const SetHeader &header) {
  FoundSet goal = set;
  goal.header = header;
  std::erase_if(goal.files, [&](const ShardFile &file) { return file.index >= header.shard_count(); });
  for (ShardFile &file : goal.files)
    if (header != set.header) file.condition |= TANDEM_FILES_OTHER_SIZE;
  goal.shard_count = header.shard_count() - static_cast<std::uint32_t>(missing_shards(goal).size());
  return goal;
}

[[noreturn]] void ask_for_repair(const std::string &why) {
  fail(TANDEM_ERROR_DAMAGED, why + "; repair the set first (tandem repair)");
}

// A resize that did not end may lack shards that it was to make, and only these.
void check_files(const FoundSet &set, const FoundSet &goal) {
  const std::uint32_t wanted_count = set.header.k + std::min(set.least_m, goal.header.m);
  for (const std::uint32_t shard : missing_shards(goal))
    if (shard < wanted_count) ask_for_repair(base::text("shard ", shard, " is missing"));
  for (const ShardFile &file : set.files) {
    if (!file.unread.empty()) fail(TANDEM_ERROR_IO, file.unread);
    if (parse_own_name(name_of(file.path)))
      fail(TANDEM_ERROR_IO, base::text("the encode of the set is not finished, ", file.path,
                                       " has no name yet: name all folders of the encode"));
    if ((file.condition & TANDEM_FILES_WRONG_LENGTH) != 0 && file.index < goal.header.shard_count())
      ask_for_repair(
          base::text(file.path, " has ", file.file_bytes, " bytes, ", set.header.shard_file_bytes(), " are right"));
  }
}

Findings nothing_bad(const FoundSet &goal) {
  Findings findings;
  findings.bad.resize(goal.files.size());
  findings.lost_count.resize(goal.files.size());
  findings.readable = readable_stripes(goal);
  return findings;
}

// What is dropped could have mended damage of what stays.
Findings check_blocks(const RepairTask &task) {
  tandem_files_verify_options reading = {};
  reading.thread_count = task.options.thread_count;
  reading.progress = task.options.progress;
  reading.progress_user = task.options.progress_user;
  Findings findings = inspect(task.context, task.set, reading, task.team);
  for (std::size_t file = 0; file < task.set.files.size(); ++file)
    if (const std::uint64_t count = findings.bad[file].count(); count != 0)
      ask_for_repair(base::text(task.set.files[file].path, " has ", count, " damaged block", count == 1 ? "" : "s"));
  return findings;
}

// Returns how many there are. As long as one of them is there, the set has its former m.
std::uint32_t remove_dropped(const RepairTask &task, const FoundSet &set) {
  std::uint32_t count = 0;
  Folders folders;
  const LockWait wait = lock_wait(task.options);
  for (const ShardFile &file : set.files) {
    if (file.index < task.header.shard_count()) continue;
    ++count;
    if (task.options.dry_run != 0) continue;
    const std::shared_ptr<Folder> folder = folders[add_folder(folders, folder_of(file.path))];
    const FoldersLock lock({folder}, wait);
    struct stat status;
    if (fstatat(folder->descriptor(), name_of(file.path).c_str(), &status, 0) != 0 ||
        std::pair(status.st_dev, status.st_ino) != file.identity)
      fail(TANDEM_ERROR_IO, base::text(file.path, " was replaced since it was found; it stays"));
    folder->remove(name_of(file.path));
  }
  for (const auto &folder : folders)
    if (task.options.no_sync == 0) folder->sync();
  return count;
}

}  // namespace

tandem_files_repair_result resize(tandem_context *context, const Search &search, std::uint32_t m,
                                  tandem_files_repair_options options) {
  const auto started = std::chrono::steady_clock::now();
  check_placement(options);
  options.note = nullptr;  // about missing shards
  if (options.team != nullptr) fail(TANDEM_ERROR_UNSUPPORTED, "team: a set is resized by one process");
  const Team team(nullptr);
  const FoundSet &set = choose_set(search, options.set_id_prefix, team);
  check_current(search, set);
  check_all_read(search, set, false);
  const FoundSet goal = goal_of(set, resized(set.header, m, options.folders != nullptr ? options.folder_count : 0));
  check_files(set, goal);
  RepairTask task{context, search, goal, options, team};
  task.findings = m < set.header.m ? check_blocks(task) : nothing_bad(goal);
  write_targets(
      task, [&] { plan_repair(task); }, true);
  tandem_files_repair_result result = tell(task);
  result.removed_file_count = remove_dropped(task, set);
  if (const std::uint64_t bad_count = task.source.reader().bad_block_count(); bad_count != 0) {
    result.left_block_count = bad_count;
    result.state = TANDEM_FILES_RECOVERABLE;
  }
  if (options.dry_run != 0 && result.removed_file_count != 0) result.state = TANDEM_FILES_RECOVERABLE;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

}  // namespace tandem::files
