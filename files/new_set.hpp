// SPDX-License-Identifier: Apache-2.0
// A set that is being written: temporaries in its folders until all of them are complete.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "files/unfinished.hpp"

namespace tandem::files {

class NewSet {
 public:
  struct Options {
    SetId set_id{};
    std::string name;
    std::uint32_t mode = kModeUnknown;
    bool force = false, no_sync = false;
    bool joins = false;  // writes to the files that another process has made; only that one commits
    LockWait wait{};
    std::function<void(const std::string &)> note{};  // receives what is cleaned up and replaced
  };

  // folder_of_shard: a path for each shard; the last component is made if missing. Cleans up there after dead runs.
  NewSet(Options options, const std::vector<std::string> &folder_of_shard);
  ~NewSet();
  NewSet(const NewSet &) = delete;
  NewSet &operator=(const NewSet &) = delete;

  int descriptor(std::uint32_t shard) const { return files_[shard].descriptor(); }
  std::string path(std::uint32_t shard) const { return files_[shard].path(); }
  void finish(std::uint32_t shard) { files_[shard].finish(options_.no_sync); }
  // SetHeader::folder_count.
  std::uint32_t folders_in_turn() const;
  // Call it when every file is on the disk but for its records. write_records writes those of one shard, the one at
  // the start last, with the ids of the sets that are replaced. Returns Finished::replaced.
  std::vector<Descriptor> commit(
      const std::function<void(std::uint32_t shard, const std::vector<SetId> &replaced)> &write_records);

 private:
  explicit NewSet(Options options);
  void make_folders(const std::vector<std::string> &folder_of_shard);
  std::vector<SetId> sets_to_replace() const;
  void sync_folders() const;

  Options options_;
  std::vector<std::string> made_;  // folders that this set made
  Folders folders_;
  std::vector<std::uint16_t> folder_of_;  // by shard
  std::vector<PendingFile> files_;        // by shard
  bool is_complete_ = false;              // or may be
};

// What a new set of this name finds in folders that exist: the ids of the sets that it replaces, those called so first,
// then those that they replaced. Throws, and changes nothing, if one of its names is a folder or, without `force`, if
// there is anything to replace. `except`: sets that do not count. The caller has locked the folders.
std::vector<SetId> sets_to_replace(const Folders &folders, const NewSet::Options &options,
                                   const std::vector<SetId> &except);
void check_name_free(const std::string &folder, const std::string &name, std::uint32_t shard, bool force);

}  // namespace tandem::files
