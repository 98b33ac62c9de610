// SPDX-License-Identifier: Apache-2.0
#include "files/new_set.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <set>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/io.hpp"
#include "files/recovery.hpp"

namespace tandem::files {
namespace {

// Checked before anything is made. Replaced files stay open only while there are enough descriptors.
void check_files_to_open(const std::vector<std::string> &folder_of_shard) {
  const std::size_t shards = folder_of_shard.size();
  const std::size_t folders = std::set(folder_of_shard.begin(), folder_of_shard.end()).size();
  check_open_files(shards + 2 * folders, base::text(shards, " shard files, ", folders, " folder",
                                                    folders == 1 ? "" : "s", " and the record in each"));
}

// Shard files of this name that have no shard of the set in their place.
std::bitset<kMaxShardCount> stale_files(const Folder &folder, const CommitRecord &record) {
  std::bitset<kMaxShardCount> stale;
  for (const std::string &other : record.force ? folder.names() : std::vector<std::string>())
    if (const auto parts = parse_shard_file_name(other);
        parts && parts->first == record.name && !record.is_here(parts->second))
      stale[parts->second] = is_shard_file(folder, other);
  return stale;
}

}  // namespace

void check_names_free(const std::string &folder, const std::string &name, std::uint32_t shard, bool force) {
  const std::string path = base::text(folder, "/", shard_file_name(name, shard));
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return;
  if (!force) fail(TANDEM_ERROR_IO, path, " exists; use --force to replace it");
  if (S_ISDIR(status.st_mode)) fail(TANDEM_ERROR_IO, path, " is a folder");
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
  const Recovered recovered = recover(folders_, false);
  for (const std::string &note : recovered.notes)
    if (options_.note) options_.note(note);
  given_up_ = refuse_unfinished(folders_, options_.name, {options_.set_id}, options_.force);
  check_names();
  make_records();
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
    files_.emplace_back(folders_[folder_of_[i]], own_name({OwnKind::set_temporary, options_.set_id, i}), options_.mode);
}

std::uint32_t NewSet::folders_in_turn() const {
  const auto count = static_cast<std::uint32_t>(folders_.size());
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i)
    if (folder_of_[i] != i % count) return 0;
  return count;
}

NewSet::~NewSet() {
  if (counts_) return;
  files_.clear();
  try {
    if (!members_.empty()) roll_back(members_, options_.no_sync);
  } catch (const std::exception &) {  // no memory, too
    // The next command that reads this folder cleans up.
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
}

// A file of the same set at a final name would count as finished by this run.
void NewSet::check_names() const {
  for (std::uint32_t i = 0; i < folder_of_.size(); ++i) {
    const Folder &folder = *folders_[folder_of_[i]];
    check_names_free(folder.path(), options_.name, i, options_.force);
    if (const std::string name = shard_file_name(options_.name, i);
        options_.force && is_shard_of(folder, name, options_.set_id, i))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, folder.path_of(name), " is of set ", hexadecimal(options_.set_id),
           " already: a new set needs an id of its own");
  }
}

void NewSet::make_records() {
  CommitRecord record;
  record.set_id = options_.set_id;
  record.shard_count = static_cast<std::uint32_t>(folder_of_.size());
  record.folder_count = static_cast<std::uint32_t>(folders_.size());
  record.force = options_.force;
  record.name = options_.name;
  record.folder_of = folder_of_;
  const std::string name = own_name({OwnKind::pending_record, options_.set_id});
  // If there is a record, all folders exist.
  if (!options_.no_sync && folders_.size() > 1) sync_parents();
  // The lead's record last: if it exists, the others exist, on the disk too. Temporaries are made after all records.
  for (record.folder = record.folder_count; record.folder-- != 0;) {
    const std::shared_ptr<Folder> &folder = folders_[record.folder];
    if (record.folder == 0 && record.folder_count > 1 && !options_.no_sync)
      for (const auto &each : folders_) each->sync();
    record.stale = stale_files(*folder, record);
    record.given_up = given_up_[record.folder];
    const std::vector<std::byte> bytes = commit_record_bytes(record);
    Descriptor file = folder->open_file(name, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (!file) fail_io("create", folder->path_of(name), errno);
    const int descriptor = file.get();
    lock_file(file);
    members_.push_back({folder, record, false, std::move(file)});
    if (!write_at(descriptor, bytes.data(), bytes.size(), 0)) fail_io("write", folder->path_of(name), errno);
    if (!options_.no_sync && fsync(descriptor) != 0) fail_io("sync", folder->path_of(name), errno);
  }
  if (!options_.no_sync && folders_.size() > 1) folders_.front()->sync();
}

// The records have had the sets that this set gives up since they were made. They lack later ones.
void NewSet::check_given_up() const {
  const std::vector<std::vector<SetId>> now =
      refuse_unfinished(folders_, options_.name, {options_.set_id}, options_.force);
  for (std::size_t folder = 0; folder < now.size(); ++folder)
    for (const SetId &id : now[folder])
      if (std::ranges::find(given_up_[folder], id) == given_up_[folder].end())
        fail(TANDEM_ERROR_IO, "set ", hexadecimal(id), ", also called ", options_.name, ", was begun in ",
             folders_[folder]->path(), " and not finished while this set was written");
}

// Another set of this name may have got its files since the records were made.
void NewSet::renew_records() {
  for (FolderRecord &member : members_)
    if (const auto stale = stale_files(*member.folder, member.record); stale != member.record.stale) {
      member.record.stale = stale;
      rewrite_record(member, options_.no_sync);
    }
}

void NewSet::sync_folders() const {
  if (options_.no_sync) return;
  for (const auto &folder : folders_) folder->sync();
  sync_parents();
}

void NewSet::sync_parents() const {
  for (const std::string &path : made_) Folder(folder_of(path)).sync();
}

std::vector<Descriptor> NewSet::commit() {
  const FoldersLock lock(folders_, options_.wait);
  recover(folders_, false);  // a run that died meanwhile may have used the same names
  check_given_up();
  check_names();
  renew_records();
  sync_folders();
  FolderRecord &lead = members_.back();
  make_committed(lead);
  for (PendingFile &file : files_) file.release();
  counts_ = true;
  try {
    if (!options_.no_sync) lead.folder->sync();
  } catch (const Error &error) {
    // A failed sync is final: it is unknown whether the set counts on the disk, and a second successful sync would not
    // tell. So nothing is removed here. The file is renamed back. If that fails too, the set counts, which does no
    // harm.
    renameat(lead.folder->descriptor(), own_name({OwnKind::commit_record, options_.set_id}).c_str(),
             lead.folder->descriptor(), own_name({OwnKind::pending_record, options_.set_id}).c_str());
    fail(error.status(), error.what(),
         "; it is not known whether the new set is valid, and the next command that reads "
         "all these folders decides");
  }
  Finished finished;
  try {
    finished = roll_forward(members_, folders_, options_.no_sync);
  } catch (const Error &error) {
    fail(error.status(), "the new set is complete, but not all of its files have their names yet (", error.what(),
         "); the next command that reads or writes these folders continues");
  }
  for (std::size_t folder = 0; options_.note && folder < given_up_.size(); ++folder)
    for (const SetId &id : given_up_[folder])
      options_.note(base::text("gave up the files of the unfinished set ", hexadecimal(id), " in ",
                               folders_[folder]->path(), ": the new set replaces it"));
  if (!finished.missing.empty())
    fail(TANDEM_ERROR_IO, "another program removed ", finished.missing.front(), " while it was written; of ",
         folder_of_.size(), " shards, ", finished.missing.size(), " are missing");
  return std::move(finished.replaced);
}

}  // namespace tandem::files
