// SPDX-License-Identifier: Apache-2.0
#include "base/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/os.hpp"
#include "base/text.hpp"

namespace tandem::base {
namespace {

int lock(int descriptor, int how) noexcept {
  for (;;) {
    const int result = flock(descriptor, how);
    if (result == 0 || errno != EINTR) return result;
  }
}

using Clock = std::chrono::steady_clock;

// Waits in short sleeps: a wait inside flock() ends neither by a time-out nor by a cancel.
void lock_until(Clock::time_point deadline, const Folder &folder, const LockWait &wait) {
  constexpr auto kNap = std::chrono::milliseconds(20);
  while (lock(folder.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (Clock::now() >= deadline) throw FolderLocked(folder, wait.seconds);
    if (wait.check_cancelled) wait.check_cancelled();
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

std::string folder_of(const std::string &path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string &path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

Folder::Folder(std::string path, FolderUse use, FolderHold hold)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!descriptor_ && errno == EACCES && use == FolderUse::enter) {
    can_be_listed_ = false;
    descriptor_ = Descriptor(open(path_.c_str(), os::kEnterOnly | O_DIRECTORY | O_CLOEXEC));
  }
  identify();
  if (hold == FolderHold::by_path) descriptor_ = Descriptor();
}

Folder::Folder(std::string path, Descriptor opened) : path_(std::move(path)), descriptor_(std::move(opened)) {
  identify();
}

void Folder::identify() {
  struct stat status;
  if (!descriptor_ || fstat(descriptor_.get(), &status) != 0) fail_io("open the folder", path_, errno);
  identity_ = {status.st_dev, status.st_ino};
}

int Folder::reach(Descriptor &opened) const noexcept {
  if (descriptor_) return descriptor_.get();
  opened = Descriptor(open(path_.c_str(), (can_be_listed_ ? O_RDONLY : os::kEnterOnly) | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (!opened || fstat(opened.get(), &status) != 0) return -1;
  if (identity_ == std::pair(status.st_dev, status.st_ino)) return opened.get();
  errno = ENOENT;
  return -1;
}

std::string Folder::path_of(const std::string &name) const {
  return path_.ends_with('/') ? path_ + name : path_ + "/" + name;
}

std::vector<std::string> Folder::names() const {
  if (!can_be_listed_) fail_io("list", path_, EACCES);
  Descriptor opened;
  const int folder = reach(opened);
  if (folder < 0 && !is_held() && (errno == ENOENT || errno == ENOTDIR)) return {};
  // Its own descriptor: a shared one would share the position in the list with other threads.
  const int own = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *const list = own >= 0 ? fdopendir(own) : nullptr;
  if (list == nullptr) {
    const int error = errno;
    if (own >= 0) close(own);
    fail_io("list", path_, error);
  }
  const std::unique_ptr<DIR, int (*)(DIR *)> closer(list, closedir);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent *entry = readdir(list);
    if (entry == nullptr) break;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) {
      struct stat status;
      is_folder = fstatat(folder, entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
    }
    if (!is_folder) names.emplace_back(entry->d_name);
  }
  if (errno != 0) fail_io("list", path_, errno);
  std::ranges::sort(names);
  return names;
}

bool Folder::has(const std::string &name) const {
  Descriptor opened;
  struct stat status;
  if (const int folder = reach(opened); folder >= 0 && fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
    return true;
  if (errno != ENOENT) fail_io("look for", path_of(name), errno);
  return false;
}

Descriptor Folder::open_file(const std::string &name, int flags, mode_t mode) const noexcept {
  Descriptor opened, file;
  const int folder = reach(opened);
  if (folder < 0) return {};
  do {
    file = Descriptor(openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
  } while (!file && errno == EINTR);
  struct stat status;
  if (!file) return {};
  if (fstat(file.get(), &status) == 0) {
    if (S_ISREG(status.st_mode)) return file;
    errno = EINVAL;
  } else if ((flags & O_EXCL) != 0) {  // this call made it
    const int error = errno;
    unlinkat(folder, name.c_str(), 0);
    errno = error;
  }
  return {};
}

void Folder::rename(const std::string &from, const Folder &into, const std::string &to, bool replace) const {
  const int folder = descriptor_.get(), target = into.descriptor_.get();
  int result;
  if (replace) {
    result = renameat(folder, from.c_str(), target, to.c_str());
  } else {
    result = os::rename_to_new(folder, from.c_str(), target, to.c_str());
    if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // A file system without RENAME_NOREPLACE. link() does not replace either.
      result = linkat(folder, from.c_str(), target, to.c_str(), 0);
      if (result == 0) {
        unlinkat(folder, from.c_str(), 0);
      } else if (errno == EPERM || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS) {
        // A file system without hard links too. The lock keeps out our own processes; a short race with others remains.
        const bool taken = into.has(to);
        errno = EEXIST;
        if (!taken) result = renameat(folder, from.c_str(), target, to.c_str());
      }
    }
  }
  if (result != 0) fail_io("rename the finished file to", into.path_of(to), errno);
}

void Folder::remove(const std::string &name) const {
  if (unlinkat(descriptor_.get(), name.c_str(), 0) != 0 && errno != ENOENT) fail_io("remove", path_of(name), errno);
}

void Folder::sync() const {
  // Some file systems cannot sync a folder, and return EINVAL. Then nothing can be done.
  if (fsync(descriptor_.get()) != 0 && errno != EINVAL) fail_io("sync", path_, errno);
}

void make_folder(const std::string &path, std::vector<std::string> &made, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0) {
    if (errno == EEXIST) return;
    const std::string above = folder_of(path);
    if (errno != ENOENT || above == path) fail_io("make the folder", path, errno);
    make_folder(above, made, mode);
    if (mkdir(path.c_str(), mode) != 0) {
      if (errno == EEXIST) return;  // "above/"
      fail_io("make the folder", path, errno);
    }
  }
  made.push_back(path);
}

std::size_t add_folder(Folders &folders, const std::string &path, FolderUse use) {
  auto folder = std::make_shared<Folder>(path, use);
  for (std::size_t i = 0; i < folders.size(); ++i)
    if (folders[i]->identity() == folder->identity()) return i;
  folders.push_back(std::move(folder));
  return folders.size() - 1;
}

std::size_t ManyFolders::add(const std::string &path, FolderUse use) {
  auto folder = std::make_shared<Folder>(path, use, FolderHold::by_path);
  const auto [entry, is_new] = places_.emplace(folder->identity(), folders_.size());
  if (is_new) folders_.push_back(std::move(folder));
  return entry->second;
}

FolderLocked::FolderLocked(const Folder &folder, std::uint32_t seconds)
    : Error(TANDEM_ERROR_IO,
            base::text(folder.path(), " is locked by another process (flock), for more than ", seconds, " second",
                       seconds == 1 ? "" : "s",
                       " now; a lock around a command of tandem must be on another file than a folder that it uses")) {}

FoldersLock::FoldersLock(const Folders &folders, const LockWait &wait) : folders_(folders) {
  // All processes lock in the same order, so there is no deadlock.
  std::ranges::sort(folders_, [](const auto &a, const auto &b) { return a->identity() < b->identity(); });
  const Clock::time_point deadline = wait.began.value_or(Clock::now()) + std::chrono::seconds(wait.seconds);
  try {
    for (const auto &folder : folders_) lock_until(deadline, *folder, wait);
  } catch (...) {
    unlock();
    throw;
  }
}

FoldersLock::~FoldersLock() { unlock(); }

void FoldersLock::unlock() noexcept {
  for (const auto &folder : folders_) lock(folder->descriptor(), LOCK_UN);
}

Descriptor open_to_lock(const Folder &folder, const std::string &name) {
  Descriptor file = folder.open_file(name, O_RDWR);
  if (!file && (errno == EACCES || errno == EPERM || errno == EROFS)) file = folder.open_file(name, O_RDONLY);
  return file;
}

Lock lock_file(const Descriptor &file) noexcept {
  if (lock(file.get(), LOCK_EX | LOCK_NB) == 0) return Lock::ours;
  return errno == EWOULDBLOCK ? Lock::held_by_another : Lock::unknown;
}

}  // namespace tandem::base
