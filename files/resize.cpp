// SPDX-License-Identifier: Apache-2.0
// Changes m of a set in place (docs/format.md, section 9). New shards are missing shards of a larger set, and are
// written as repair writes them.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "base/options.hpp"
#include "files/calls.hpp"
#include "files/repair_steps.hpp"
#include "files/unfinished.hpp"
#include "tandem/tools.h"

namespace tandem::files {
namespace {

// are_given: folders for new shards; else they go to those of the set.
SetHeader resized(const SetHeader &header, std::uint32_t m, bool are_given) {
  SetHeader goal = header;
  goal.m = m;
  if (m == header.m) return goal;
  const char *matrix = tandem_matrix_name(header.matrix);
  if (!can_be_resized(header.matrix))
    fail(TANDEM_ERROR_UNSUPPORTED, "the rows of matrix ", matrix, " depend on m, so parity for m = ", m,
         " has other bytes than parity for m = ", header.m, ": decode the set and encode it again");
  if (goal.folder_count > header.k + std::uint64_t{m}) {
    goal.folder_count = goal.shard_count();
  } else if (are_given && header.folder_count == header.shard_count()) {
    goal.folder_count = 0;  // each shard had a folder of its own; the next shard need not be in the first one
  }
  if (const auto why = out_of_limits(goal)) fail(TANDEM_ERROR_INVALID_ARGUMENT, *why);
  try {
    make_codec(goal, !any_k_suffice(header));
  } catch (const Error &error) {
    if (error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
    fail(error.status(), "matrix ", matrix, " of the set has no k = ", header.k, " and m = ", m,
         any_k_suffice(header) ? " in which any k shards are enough" : "",
         ": decode the set and encode it again with another matrix");
  }
  return goal;
}

// The files of the shards that stay, as files of the resized set. OTHER_M: their records must be written.
FoundSet goal_of(const FoundSet &set, const SetHeader &header) {
  FoundSet goal = set;
  goal.header = header;
  std::erase_if(goal.files, [&](const ShardFile &file) { return file.index >= header.shard_count(); });
  for (ShardFile &file : goal.files) {
    file.condition &= ~std::uint32_t{TANDEM_FILES_OTHER_M};
    if (file.header != header) file.condition |= TANDEM_FILES_OTHER_M;
    file.header = header;
  }
  goal.shard_count = header.shard_count() - static_cast<std::uint32_t>(missing_shards(goal).size());
  return goal;
}

template <class... Parts>
[[noreturn]] void ask_for_repair(const Parts &...why) {
  fail(TANDEM_ERROR_DAMAGED, why..., "; repair the set first (tandem repair)");
}

// If an earlier resize is not finished, shards above the smaller m may be missing.
void check_files(const FoundSet &set, const FoundSet &goal) {
  if (!has_enough_shards(set))
    fail(TANDEM_ERROR_NOT_RECOVERABLE, set.shard_count, " shards of a set of ", set.header.k, " + ", set.header.m,
         " are found: too few to recover the others");
  const std::uint32_t wanted_count = set.header.k + std::min(least_m(set), goal.header.m);
  for (const std::uint32_t shard : missing_shards(goal))
    if (shard < wanted_count) ask_for_repair("shard ", shard, " is missing");
  for (const ShardFile &file : set.files) {
    if (!file.unread.empty()) fail(TANDEM_ERROR_IO, file.unread);
    if (parse_own_name(name_of(file.path)))
      fail(TANDEM_ERROR_IO, "the encode of the set is not finished, ", file.path,
           " has no name yet: name all folders of the encode");
    if ((file.condition & TANDEM_FILES_WRONG_LENGTH) != 0 && file.index < goal.header.shard_count())
      ask_for_repair(file.path, " has ", file.file_bytes, " bytes, ", set.header.shard_file_bytes(), " are right");
  }
}

Findings nothing_bad(const FoundSet &goal) {
  Findings findings;
  findings.bad.resize(goal.files.size());
  findings.lost_count.resize(goal.files.size());
  findings.readable = readable_stripes(goal);
  return findings;
}

// Without the dropped shards, damage of the others might not be recoverable.
Findings check_blocks(const RepairTask &task, const FoundSet &set) {
  Findings findings = inspect(task.context, task.set, reading_options(task.options), task.team);
  for (std::size_t file = 0; file < task.set.files.size(); ++file)
    if (const std::uint64_t count = findings.bad[file].count(); count != 0) {
      if (!inspect(task.context, set, reading_options(task.options), task.team).recoverable)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, "some stripes cannot be recovered (tandem verify)");
      ask_for_repair(task.set.files[file].path, " has ", count, " damaged block", count == 1 ? "" : "s");
    }
  return findings;
}

// While no other process changes these folders.
void check_unchanged(const Search &search, const FoundSet &set) {
  const Search now = files::search(search.paths);
  if (std::ranges::find(now.sets, set) == now.sets.end())
    fail(TANDEM_ERROR_IO, "files of the set have changed since they were found; nothing is changed");
}

// A dropped file may have another name, by a hard link.
void check_done(const Search &search, const SetHeader &header) {
  std::vector<std::string> paths = search.paths;
  std::erase_if(paths, [](const std::string &path) { return access(path.c_str(), F_OK) != 0; });
  if (paths.empty()) return;
  const Search now = files::search(paths);
  for (const FoundSet &each : now.sets)
    for (const ShardFile &file : each.files)
      if (file.header != header && describe_one_set(file.header, header))
        fail(TANDEM_ERROR_IO, file.path, " is still a shard of ", file.header.k, " + ", file.header.m,
             ": run the same resize again");
}

void report_dropped(const tandem_files_repair_options &options, std::span<const ShardFile> dropped) {
  for (const ShardFile &file : dropped) {
    auto finding = base::sized<tandem_files_finding>();
    finding.path = file.path.c_str();
    finding.index = file.index;
    finding.file_bytes = file.file_bytes;
    finding.action = TANDEM_FILES_REMOVE;
    if (options.report != nullptr) options.report(options.report_user, &finding);
  }
}

// Which of them may come back and bring the larger m back.
void note_unseen(const RepairTask &task, const FoundSet &set) {
  std::string list;
  for (const std::uint32_t shard : missing_shards(set))
    if (shard >= task.header.shard_count()) list += (list.empty() ? "" : ", ") + std::to_string(shard);
  if (!list.empty())
    task.note(
        "no file of these dropped shards was found, and a file that comes back makes the set the former "
        "one again: ",
        list);
}

}  // namespace

tandem_files_repair_result resize(tandem_context *context, const Search &search, std::uint32_t m,
                                  const tandem_files_repair_options &options) {
  const auto started = std::chrono::steady_clock::now();
  check_placement(options);
  if (options.team != nullptr) fail(TANDEM_ERROR_UNSUPPORTED, "team: a set is resized by one process");
  const Team team(nullptr);
  const FoundSet &set = choose_set(search, options.set_id_prefix, team);
  check_all_read(search, set);
  const FoundSet goal =
      goal_of(set, resized(set.header, m, options.folders != nullptr || options.new_folders != nullptr));
  check_files(set, goal);
  RepairTask task{context, search, goal, options, team};
  task.findings = m < set.header.m ? check_blocks(task, set) : nothing_bad(goal);
  plan_resize(task);
  const auto dropped = std::span(set.files).subspan(goal.files.size());
  Folders folders;
  std::optional<FoldersLock> lock;
  const auto lock_all = [&] {
    for (const ShardFile &file : set.files) add_folder(folders, folder_of(file.path));
    for (const Target &target : task.targets) add_folder(folders, target.place.folder);
    lock.emplace(folders, lock_wait(options));
    check_unchanged(search, set);
  };
  const bool changes = options.dry_run == 0 && !(task.targets.empty() && dropped.empty());
  try {
    write_targets(task, lock_all);
  } catch (const Error &error) {
    if (std::ranges::any_of(task.targets, [](const Target &each) { return each.left_count != 0; }))
      fail(TANDEM_ERROR_NOT_RECOVERABLE, error.what());
    throw;
  }
  tandem_files_repair_result result = tell(task);
  if (changes) {
    if (!lock) lock_all();
    for (const ShardFile &file : dropped)
      folders[add_folder(folders, folder_of(file.path))]->remove(name_of(file.path));
    for (const auto &folder : folders)
      if (options.no_sync == 0 && !dropped.empty()) folder->sync();
    check_done(search, goal.header);
  }
  report_dropped(options, dropped);
  note_unseen(task, set);
  result.removed_file_count = static_cast<std::uint32_t>(dropped.size());
  result.left_block_count = task.source.reader().bad_block_count();
  const bool is_left =
      result.left_block_count != 0 || (options.dry_run != 0 && task.targets.size() + dropped.size() != 0);
  result.state = is_left ? TANDEM_FILES_RECOVERABLE : TANDEM_FILES_INTACT;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

}  // namespace tandem::files
