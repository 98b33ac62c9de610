// A folder that shard files are written to, held open: everything in it is reached through the descriptor, so that a
// folder renamed meanwhile, or a link put in its place, leads nowhere else.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files/error.hpp"
#include "files/format.hpp"
#include "files/io.hpp"

namespace tandem::files {

// What a folder is opened for. Files in one that may be entered and not listed (mode 0711) can be read by their names;
// whoever writes to a folder has to know what lies there.
enum class FolderUse { list, enter };

class Folder {
 public:
  explicit Folder(std::string path, FolderUse use = FolderUse::list);

  const std::string &path() const noexcept { return path_; }
  std::string path_of(const std::string &name) const;
  int descriptor() const noexcept { return descriptor_.get(); }
  // Same folder, however it is spelled.
  std::pair<dev_t, ino_t> identity() const noexcept { return identity_; }
  bool can_be_listed() const noexcept { return can_be_listed_; }

  std::vector<std::string> names() const;  // of everything but folders, sorted
  // Whether there is anything of this name. Throws when that cannot be known.
  bool has(const std::string &name) const;
  // Opens a regular file, never through a symbolic link; an empty one with errno on failure.
  Descriptor open_file(const std::string &name, int flags, mode_t mode = 0) const noexcept;
  void rename(const std::string &from, const std::string &to, bool replace) const;
  void remove(const std::string &name) const;  // one that is not there is fine
  // Writes what the folder's entries are to disk.
  void sync() const;

 private:
  std::string path_;
  Descriptor descriptor_;
  std::pair<dev_t, ino_t> identity_;
  bool can_be_listed_ = true;
};

using Folders = std::vector<std::shared_ptr<Folder>>;  // each folder once

// Adds the folder unless it is there; returns its place.
std::size_t add_folder(Folders &folders, const std::string &path, FolderUse use = FolderUse::list);

// How long to wait for folders, all together, that somebody else has locked: perhaps the very program that started this
// one, so not for ever.
struct LockWait {
  std::uint32_t seconds = 60;
  std::function<void()> check_cancelled{};  // throws; called while waiting
  // When a wait began that several locks share, one after the other; else each has a time of its own.
  std::optional<std::chrono::steady_clock::time_point> began{};
};

// TANDEM_ERROR_IO: somebody else still has the lock of a folder after that.
class FolderLocked : public Error {
 public:
  FolderLocked(const Folder &folder, std::uint32_t seconds);
};

// Whoever makes, finishes or cleans up temporaries in folders holds this meanwhile: one at a time, and a temporary that
// exists without its owner's lock has a dead owner. Waits for others; where a file system has no locks it does nothing.
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
  unknown  // errno says why: this file system has no locks, say
};

// Locks a file for as long as the descriptor lives.
Lock lock_file(const Descriptor &file) noexcept;

// A file that is written under a temporary name in the folder where it is going to live. Removed unless it was renamed
// or released.
class PendingFile {
 public:
  // The folder is locked by the caller. The temporary is made new: a symbolic link or an older file in its place is
  // refused.
  // mode: permission bits, or kModeUnknown: 0666 less the process' umask.
  PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name, std::uint32_t mode);
  // One that another writer has made; it stays the other's to remove.
  PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name);
  PendingFile(PendingFile &&other) noexcept;
  PendingFile &operator=(PendingFile &&) = delete;
  ~PendingFile();

  int descriptor() const noexcept { return descriptor_.get(); }
  std::string path() const { return folder_->path_of(name_); }

  // Sets the mode and syncs unless told not to: the bytes are complete.
  void finish(bool no_sync);
  // Gives it its name and writes the folder's entries to disk.
  void rename(const std::string &final_name, bool replace, bool no_sync);
  void release() noexcept { exists_ = false; }

 private:
  std::shared_ptr<Folder> folder_;
  std::string name_;
  Descriptor descriptor_;
  std::uint32_t mode_ = kModeUnknown;
  bool exists_ = false;
};

}  // namespace tandem::files
