// SPDX-License-Identifier: Apache-2.0
#include "files/new_set.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/io.hpp"

namespace tandem::files {
namespace {

// Checked before anything is made. Replaced files stay open only while there are enough descriptors.
void check_files_to_open(const std::vector<std::string> &folder_of_shard) {
  const std::size_t shards = folder_of_shard.size();
  const std::size_t folders = std::set(folder_of_shard.begin(), folder_of_shard.end()).size();
  check_open_files(shards + folders,
                   base::text(shards, " shard files and ", folders, " folder", folders == 1 ? "" : "s"));
}

bool contains(const std::vector<SetId> &ids, const SetId &id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

void check_name_free(const std::string &folder, const std::string &name, std::uint32_t shard, bool force) {
  const std::string path = base::text(folder, "/", shard_file_name(name, shard));
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return;
  if (!force) fail(TANDEM_ERROR_IO, path, " exists; use --force to replace it");
  if (S_ISDIR(status.st_mode)) fail(TANDEM_ERROR_IO, path, " is a folder");
}

std::vector<SetId> sets_to_replace(const Folders &folders, const NewSet::Options &options,
                                   const std::vector<SetId> &except) {
  const FolderContents contents = contents_of(folders, options.name);
  for (const auto &[path, why] : contents.unread)
    if (is_called(name_of(path), options.name)) fail(TANDEM_ERROR_IO, why);
  std::vector<SetId> ids;
  for (const auto &entry : contents.sets) {
    const SetId &id = entry.first;
    const SetParts &set = entry.second;
    // The name of temporaries that are damaged is not known.
    const auto part = std::ranges::find_if(set.parts, [&](const Part &each) {
      return is_called(each.name, options.name) ||
             (set.header ? set.header->name == options.name : set.is_known_damaged());
    });
    if (part == set.parts.end() || contains(except, id)) continue;
    const std::string path = folders[part->folder]->path_of(part->name);
    if (!options.force)
      fail(TANDEM_ERROR_IO, path, " is of set ", hexadecimal(id),
           set.header ? ", also called " : ", perhaps also called ", options.name, "; use --force to replace it");
    if (id == options.set_id)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, path, " is of set ", hexadecimal(id),
           " already: a new set needs an id of its own");
    if (set.has(Form::temporary) || set.has(Form::by_set))
      if (const Lock lock = lock_of(folders, set); lock != Lock::ours)
        fail(TANDEM_ERROR_IO, path, " is of set ", hexadecimal(id), ", which is not finished and ",
             lock == Lock::held_by_another
                 ? "is being written"
                 : "cannot be locked: if no process writes it, on any machine, remove its files to replace it");
    ids.push_back(id);
  }
  if (ids.size() > kMaxReplacedCount)
    fail(TANDEM_ERROR_IO, ids.size(), " sets are called ", options.name, ", and a new one replaces at most ",
         kMaxReplacedCount, " at once: remove some of their files first");
  for (std::size_t i = 0, count = ids.size(); i < count; ++i) {
    const auto &header = contents.sets.at(ids[i]).header;
    for (const SetId &id : header ? header->replaced : std::vector<SetId>()) {
      if (id == options.set_id)
        fail(TANDEM_ERROR_INVALID_ARGUMENT, "set ", hexadecimal(header->set_id), " has replaced a set ",
             hexadecimal(id), ": a new set needs an id of its own");
      if (ids.size() < kMaxReplacedCount && !contains(ids, id)) ids.push_back(id);
    }
  }
  std::ranges::sort(ids);
  return ids;
}

NewSet::NewSet(Options options) : options_(std::move(options)) {}

NewSet::NewSet(Options options, const std::vector<std::string> &folder_of_shard) : NewSet(std::move(options)) {
  check_files_to_open(folder_of_shard);
  make_folders(folder_of_shard);
  if (options_.joins) {
    for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
      files_.emplace_back(folders_[folder_of_[i]], own_name({OwnKind::set_temporary, options_.set_id, i}));
    return;
  }
  const FoldersLock lock(folders_, options_.wait);
  for (const std::string &note : recover(folders_, CleanUp::real).notes)
    if (options_.note) options_.note(note);
  (void)sets_to_replace();
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
    files_.emplace_back(folders_[folder_of_[i]], own_name({OwnKind::set_temporary, options_.set_id, i}), options_.mode);
}

std::uint32_t NewSet::folders_in_turn() const {
  const auto count = static_cast<std::uint32_t>(folders_.size());
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
    if (folder_of_[i] != i % count) return 0;
  return count;
}

// The last file, which has no start record, goes last: it shows that the set is not complete.
NewSet::~NewSet() {
  if (is_complete_ || options_.joins) return;
  while (files_.size() > 1) files_.erase(files_.begin());
  try {
    sync_folders();
    files_.clear();
  } catch (const Error &) {
    for (PendingFile &file : files_) file.release();  // the next run removes it
  }
  while (!made_.empty()) {
    rmdir(made_.back().c_str());
    made_.pop_back();
  }
}

void NewSet::make_folders(const std::vector<std::string> &folder_of_shard) {
  for (std::uint32_t i = 0; i < folder_of_shard.size(); ++i) {
    const std::string &path = folder_of_shard[i];
    if (!options_.joins) make_folder(path, made_);  // else they exist
    folder_of_.push_back(static_cast<std::uint16_t>(add_folder(folders_, path)));
  }
  // A command that finishes the set does not know which folders are new.
  for (const std::string &path : made_)
    if (!options_.no_sync) Folder(folder_of(path)).sync();
}

std::vector<SetId> NewSet::sets_to_replace() const {
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
    check_name_free(folders_[folder_of_[i]]->path(), options_.name, i, options_.force);
  return files::sets_to_replace(folders_, options_, {});
}

void NewSet::sync_folders() const {
  if (options_.no_sync) return;
  for (const auto &folder : folders_) folder->sync();
}

std::vector<Descriptor> NewSet::commit(
    const std::function<void(std::uint32_t, const std::vector<SetId> &)> &write_records) {
  const FoldersLock lock(folders_, options_.wait);
  // A run that died meanwhile may have used the same names. Its notes name this set, too.
  recover(folders_, CleanUp::real);
  const std::vector<SetId> replaced = sets_to_replace();
  sync_folders();  // where a record is, no file of the set is missing
  const auto complete = [&](std::uint32_t shard) {
    write_records(shard, replaced);
    finish(shard);
  };
  const auto last = static_cast<std::uint32_t>(files_.size() - 1);
  for (std::uint32_t i = 0; i < last; ++i) complete(i);
  // Readers may see the set from here on. After a failed sync it is not known what is on the disk, so nothing goes.
  is_complete_ = true;
  for (PendingFile &file : files_) file.release();
  try {
    complete(last);
    Finished finished =
        finish_set(folders_, contents_of(folders_, options_.name), options_.set_id, options_.force, options_.no_sync);
    for (const std::string &note : finished.notes)
      if (options_.note) options_.note(note);
    return std::move(finished.replaced);
  } catch (const Error &error) {
    fail(error.status(), error.what(),
         "; files of the new set may not have their names yet, and the next command that reads or writes these folders "
         "continues");
  }
}

}  // namespace tandem::files
