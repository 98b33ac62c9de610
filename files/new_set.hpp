// SPDX-License-Identifier: Apache-2.0
// A set that is being written: temporaries and records in its folders until it is committed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "files/commit.hpp"

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
    std::function<void(const std::string &)> note{};  // receives what is cleaned up and given up
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
  // Call it when all files are complete. At some point inside, the set begins to count. Returns Finished::replaced.
  std::vector<Descriptor> commit();

 private:
  explicit NewSet(Options options);
  void make_folders(const std::vector<std::string> &folder_of_shard);
  void make_records();
  void check_names() const;
  void check_given_up() const;
  void renew_records();
  void sync_folders() const;
  void sync_parents() const;

  Options options_;
  std::vector<std::string> made_;  // folders that this set made
  Folders folders_;
  std::vector<std::vector<SetId>> given_up_;  // by folder: unfinished sets that this one replaces
  std::vector<std::uint16_t> folder_of_;      // by shard
  std::vector<FolderRecord> members_;         // one for each folder, the lead last
  std::vector<PendingFile> files_;            // by shard
  bool counts_ = false;                       // or may
};

// Refuses the same as commit: a name that exists (without force), or is a folder. Changes nothing.
void check_names_free(const std::string &folder, const std::string &name, std::uint32_t shard, bool force);

}  // namespace tandem::files
