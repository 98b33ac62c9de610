// SPDX-License-Identifier: Apache-2.0
// The files below a set's folder, by their names in the set. They are reached folder by folder, never through a
// symbolic link.
#pragma once

#include <sys/stat.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/folder.hpp"

namespace tandem::par2 {

// A name in a folder, which is held open.
struct Entry {
  std::shared_ptr<base::Folder> folder;  // none: it does not exist
  std::string name;

  std::string path() const { return folder->path_of(name); }
  std::optional<struct stat> status() const;  // of the name itself, also of a symbolic link; none: it does not exist
};

// A name for a file that is written beside NAME. Its writer holds a lock on it, or on another one of the same set.
std::string temporary_name(const std::string &name);
// The beginning of NAME, at most 200 bytes. Empty: it is no such name.
std::string name_of_temporary(const std::string &temporary);

class Tree {
 public:
  explicit Tree(const std::string &base) : base_(std::make_shared<base::Folder>(base.empty() ? "." : base)) {}

  const base::Folder &base() const { return *base_; }
  // Throws if something that is no folder, or a symbolic link, lies on the way. makes_folders: those that are missing.
  Entry find(const std::string &name, bool makes_folders = false);
  void keep_made(bool syncs);   // the folders that were made
  void remove_made() noexcept;  // unless they are kept, if they are empty

 private:
  std::shared_ptr<base::Folder> folder(const std::string &name, bool makes);

  std::shared_ptr<base::Folder> base_;
  std::map<std::string, std::shared_ptr<base::Folder>> open_;  // some of them
  std::vector<std::string> made_;
};

}  // namespace tandem::par2
