// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/repair_steps.hpp"

namespace tandem::files {
namespace {

// Headers may claim any length, and a rebuilt file gets that length. So k shards must have a file of at least half of
// it, or need no file.
bool is_length_credible(const RepairTask &task) {
  const SetHeader &header = task.header;
  std::vector<bool> agrees(header.shard_count(), false);
  for (const ShardFile &file : task.set.files)
    if (file.file_bytes >= header.shard_file_bytes() / 2) agrees[file.index] = true;
  for (std::uint32_t shard = 0; shard < header.k; ++shard)
    if (header.is_padding(shard)) agrees[shard] = true;
  const auto count = static_cast<std::uint32_t>(std::ranges::count(agrees, true));
  if (count >= header.k) return true;
  task.note("nothing is written: ", count, " shard", count == 1 ? " has" : "s have", " a file of at least half of the ",
            header.shard_file_bytes(), " bytes that the headers claim, ", header.k, " are needed");
  return false;
}

Target &add_file(RepairTask &task, std::size_t file) {
  const ShardFile &shard = task.set.files[file];
  Target &target = task.targets.emplace_back(task.most_ranges());
  target.file = file;
  target.shard = shard.index;
  target.place = {folder_of(shard.path), name_of(shard.path)};
  return target;
}

void plan_missing(RepairTask &task) {
  const std::uint64_t stripe_count = task.header.stripe_count();
  const bool worth_it = stripe_count == 0 ? task.findings.recoverable : task.findings.lost.count() < stripe_count;
  std::vector<std::uint32_t> missing = missing_shards(task.set);
  // If a resize is not finished, it makes the others, or drops them.
  const std::uint32_t sure_count = task.header.k + least_m(task.set);
  std::erase_if(missing, [&](std::uint32_t shard) { return shard >= sure_count; });
  if (!worth_it || missing.empty()) return;
  const Places places =
      places_for(task.search, task.set, missing, task.folders, task.new_folders, task.options.force != 0);
  if (!places.note.empty()) task.note(places.note);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    Target &target = task.targets.emplace_back(task.most_ranges());
    target.shard = missing[i];
    target.place = places.of[i];
  }
}

// The name that the search gave a folder, which the user may spell in another way.
std::string known_name(const Search &search, const std::string &path) {
  std::error_code none;
  for (const std::string &folder : search.folders)
    if (folder == path || std::filesystem::equivalent(folder, path, none)) return folder;
  return path;
}

// When all targets are written.
Layout layout_of(const RepairTask &task) {
  Layout layout(task.search, task.set);
  for (const Target &target : task.targets)
    if (target.file == kNoFile) layout.add(known_name(task.search, target.place.folder), target.shard);
  return layout;
}

void tell_crowded(RepairTask &task, const Layout &layout) {
  const std::vector<std::string> crowded = layout.crowded(task.context);
  for (const std::string &sentence : crowded) task.note(sentence);
  task.crowded_count = crowded.size();
}

// The file of one of these shards of a folder, intact and the only one of its shard. Encode put shards of one remainder
// together, so first one of which the fewest are here.
std::size_t file_to_move(const RepairTask &task, const std::set<std::uint32_t> &shards) {
  const auto turn = [&](std::uint32_t shard) { return shard % std::max(task.header.folder_count, 1u); };
  std::map<std::uint32_t, std::size_t> counts;
  for (const std::uint32_t shard : shards) ++counts[turn(shard)];
  std::size_t found = kNoFile;
  for (const std::uint32_t shard : shards) {
    if (std::ranges::count(task.set.files, shard, &ShardFile::index) != 1) continue;
    const auto at = std::ranges::find(task.set.files, shard, &ShardFile::index);
    const auto file = static_cast<std::size_t>(at - task.set.files.begin());
    if (at->condition != 0 || !task.findings.bad[file].empty()) continue;
    if (found == kNoFile || counts[turn(shard)] <= counts[turn(task.set.files[found].index)]) found = file;
  }
  return found;
}

// Shards of folders that hold more than in an even spread go to folders that hold none; of a crowded set, and with
// folders that were given, also to those that hold fewer.
void plan_moves(RepairTask &task) {
  Layout layout = layout_of(task);
  const bool is_crowded = !layout.crowded(task.context).empty();
  const std::size_t most_count = layout.even_count();
  if (is_crowded || task.header.folder_count > 1) {  // else no folder is known to be wrong
    std::vector<std::string> open = folders_to_fill(task.search, task.set, task.folders, task.new_folders);
    for (std::string &folder : open) folder = known_name(task.search, folder);
    if (!is_crowded && task.folders.empty())
      std::erase_if(open, [&](const std::string &folder) { return layout.count(folder) != 0; });
    const auto count_in = [&](const std::string &folder) { return layout.count(folder); };
    while (!open.empty()) {
      const auto lone = layout.alone();
      const auto &[from, shards] =
          *std::ranges::max_element(lone, {}, [](const auto &each) { return each.second.size(); });
      const std::string to = *std::ranges::min_element(open, {}, count_in);
      if (shards.size() <= most_count || layout.count(to) >= most_count) break;
      Target target(task.most_ranges());
      if ((target.moved = file_to_move(task, shards)) == kNoFile) break;
      target.shard = task.set.files[target.moved].index;
      target.place = places_for(task.search, task.set, {target.shard}, {to}, {}, task.options.force != 0).of[0];
      task.note(task.options.dry_run != 0 ? "would move shard " : "moves shard ", target.shard, " from ", from, " to ",
                to, ": ", from, " holds ", layout.count(from), " of the ", task.header.shard_count(), " shards");
      layout.remove(from, target.shard);
      layout.add(to, target.shard);
      task.targets.push_back(std::move(target));
    }
  }
  tell_crowded(task, layout);
}

// Checked before anything is written.
void check_files_to_open(const std::vector<Target> &targets) {
  if (targets.empty()) return;
  std::set<std::string> folders;
  for (const Target &target : targets) folders.insert(target.place.folder);
  check_open_files(targets.size() + folders.size(),
                   base::text(targets.size(), " shard files to be mended or rebuilt in ", folders.size(), " folder",
                              folders.size() == 1 ? "" : "s"));
}

}  // namespace

std::vector<std::string> strings_of(const char *const *list, std::size_t count, const char *name) {
  if (list == nullptr) return {};
  const std::vector<std::string_view> strings = base::read_strings(list, count, name);
  return {strings.begin(), strings.end()};
}

void plan_repair(RepairTask &task) {
  if (!is_length_credible(task)) return;
  for (std::size_t file = 0; file < task.set.files.size(); ++file)
    if ((task.set.files[file].condition & ~TANDEM_FILES_OTHER_M) != 0 ||
        task.findings.bad[file].count() != task.findings.lost_count[file])
      add_file(task, file);
  plan_missing(task);
  if (task.findings.recoverable && least_m(task.set) == task.header.m) plan_moves(task);
  check_files_to_open(task.targets);
  for (Target &target : task.targets)
    if (target.file != kNoFile && open_in_place(task.set.files[target.file], &target.opened))
      target.action = TANDEM_FILES_MEND;
}

void plan_resize(RepairTask &task) {
  plan_missing(task);
  if (task.targets.empty() && (task.options.force != 0 || !task.folders.empty() || !task.new_folders.empty()))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "folders and force (-o, --force) are for new shards, and none is to be made");
  tell_crowded(task, layout_of(task));
  check_files_to_open(task.targets);
  for (std::size_t file = 0; file < task.set.files.size(); ++file) {
    if (task.set.files[file].condition == 0) continue;
    Target &target = add_file(task, file);
    target.action = TANDEM_FILES_MEND;
    if (Descriptor opened; !open_in_place(task.set.files[file], &opened))
      fail(TANDEM_ERROR_IO, "cannot write to ", target.path(),
           ", and its header must get the new m; nothing is changed");
  }
}

bool open_in_place(const ShardFile &shard, Descriptor *file_out) {
  if ((shard.condition & TANDEM_FILES_WRONG_LENGTH) != 0) return false;
  Descriptor file;
  do {
    file = Descriptor(open(shard.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  } while (!file && errno == EINTR);
  if (!file && is_out_of_resources(errno)) fail_io("open", shard.path, errno);
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0 || status.st_dev != shard.identity.first ||
      status.st_ino != shard.identity.second)
    return false;
  *file_out = std::move(file);
  return true;
}

}  // namespace tandem::files
