// SPDX-License-Identifier: Apache-2.0
// A folder, held open. Everything in it is reached through the descriptor. So the files stay in this folder even if it
// is renamed, or a link replaces it. And the lock of a folder.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/io_error.hpp"

namespace tandem::base {

// "folder/name" -> "folder"; "name" -> ".".
std::string folder_of(const std::string &path);
std::string name_of(const std::string &path);

// The purpose of opening a folder. Files in a folder that may be entered but not listed (mode 0711) can be read by
// their names. A writer must be able to list the folder.
enum class FolderUse { list, enter };

// A process that reads many folders cannot keep them all open. Such a folder is opened by its path for each access, and
// has no names any more if another folder took its path. It cannot be written to or locked.
enum class FolderHold { open, by_path };

class Folder {
 public:
  explicit Folder(std::string path, FolderUse use = FolderUse::list, FolderHold hold = FolderHold::open);
  // A folder that the caller has opened, and perhaps looked at.
  Folder(std::string path, Descriptor opened);

  const std::string &path() const noexcept { return path_; }
  std::string path_of(const std::string &name) const;
  int descriptor() const noexcept { return descriptor_.get(); }
  // Same folder, however it is spelled.
  std::pair<dev_t, ino_t> identity() const noexcept { return identity_; }
  bool can_be_listed() const noexcept { return can_be_listed_; }
  bool is_held() const noexcept { return static_cast<bool>(descriptor_); }

  std::vector<std::string> names() const;  // of all entries except folders, sorted
  // Whether there is an entry of this name. Throws if that cannot be known.
  bool has(const std::string &name) const;
  // Opens a regular file, never through a symbolic link; an empty one with errno on failure.
  Descriptor open_file(const std::string &name, int flags, mode_t mode = 0) const noexcept;
  void rename(const std::string &from, const std::string &to, bool replace) const { rename(from, *this, to, replace); }
  // Into another folder of the same file system.
  void rename(const std::string &from, const Folder &into, const std::string &to, bool replace) const;
  void remove(const std::string &name) const;  // no error if it does not exist
  // Syncs the folder's entries to disk.
  void sync() const;

 private:
  void identify();
  // The descriptor; one that was opened for this access lies in `opened`. -1 with errno on failure.
  int reach(Descriptor &opened) const noexcept;

  std::string path_;
  Descriptor descriptor_;  // empty: not held
  std::pair<dev_t, ino_t> identity_;
  bool can_be_listed_ = true;
};

using Folders = std::vector<std::shared_ptr<Folder>>;  // each folder once

// Makes the folder, and those above it, unless they exist. Adds what it has made to `made`.
void make_folder(const std::string &path, std::vector<std::string> &made, mode_t mode = 0777);

// Adds the folder unless it is there; returns its place.
std::size_t add_folder(Folders &folders, const std::string &path, FolderUse use = FolderUse::list);

// The same for many folders, which are not held.
class ManyFolders {
 public:
  std::size_t add(const std::string &path, FolderUse use);
  const Folders &list() const noexcept { return folders_; }

 private:
  Folders folders_;
  std::map<std::pair<dev_t, ino_t>, std::size_t> places_;
};

// How long to wait, for all folders together, if another process has locked them. Not for ever: that may be the program
// that started this one.
struct LockWait {
  std::uint32_t seconds = 60;
  std::function<void()> check_cancelled{};  // throws; called while waiting
  // The start of a wait that several consecutive locks share. Without it each lock has its own time limit.
  std::optional<std::chrono::steady_clock::time_point> began{};
};

// TANDEM_ERROR_IO: another process still holds the lock of a folder after that.
class FolderLocked : public Error {
 public:
  FolderLocked(const Folder &folder, std::uint32_t seconds);
};

// A process holds this while it makes, finishes or cleans up temporaries in folders: one process at a time. So if a
// temporary exists without its owner's lock, its owner is dead. Waits for others. On a file system without locks it
// does nothing.
class FoldersLock {
 public:
  FoldersLock(const Folders &folders, const LockWait &wait);
  ~FoldersLock();
  FoldersLock(const FoldersLock &) = delete;
  FoldersLock &operator=(const FoldersLock &) = delete;

 private:
  void unlock() noexcept;

  Folders folders_;
};

enum class Lock {
  ours,
  held_by_another,
  unknown  // errno says why, for instance: this file system has no locks
};

// On some file systems, NFS for one, only a file that is open for writing can be locked.
Descriptor open_to_lock(const Folder &folder, const std::string &name);

// Locks a file while the descriptor is open.
Lock lock_file(const Descriptor &file) noexcept;

}  // namespace tandem::base
