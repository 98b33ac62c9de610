// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/text.hpp"
#include "files/error.hpp"
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
  check_files_to_open(task.targets);
  for (Target &target : task.targets)
    if (target.file != kNoFile && open_in_place(task.set.files[target.file], &target.opened))
      target.action = TANDEM_FILES_MEND;
}

void plan_resize(RepairTask &task) {
  plan_missing(task);
  if (task.targets.empty() && (task.options.force != 0 || !task.folders.empty() || !task.new_folders.empty()))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "folders and force (-o, --force) are for new shards, and none is to be made");
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
