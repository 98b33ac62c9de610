// SPDX-License-Identifier: Apache-2.0
#include "mpi/local_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "mpi/error.hpp"

namespace tandem::mpi {

std::string folder_of(const std::string &path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string &path) { return path.substr(path.find_last_of('/') + 1); }

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

void write_at(int descriptor, const std::string &path, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t now = pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) fail_io("write", path, now < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(now));
    offset += static_cast<std::uint64_t>(now);
  }
}

bool read_at(int descriptor, const std::string &path, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t now = pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) fail_io("read", path, errno);
    if (now == 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(now));
    offset += static_cast<std::uint64_t>(now);
  }
  return true;
}

void sync_file(int descriptor, const std::string &path) {
  if (fsync(descriptor) != 0) fail_io("sync", path, errno);
}

void sync_folder(const std::string &folder) {
  const Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) fail_io("open", folder, errno);
  // EINVAL: this file system has no sync
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) fail_io("sync", folder, errno);
}

PendingFile::PendingFile(std::string folder, std::string temporary_name, std::uint32_t mode)
    : folder_(std::move(folder)), path_(folder_ + "/" + temporary_name), mode_(mode) {
  descriptor_ =
      Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode > 0777 ? 0666 : 0600));
  if (!descriptor_) {
    const int error = errno;
    const std::string path = std::exchange(path_, "");  // not ours to remove
    fail_io("make", path, error);
  }
}

PendingFile::PendingFile(PendingFile &&other) noexcept
    : folder_(std::move(other.folder_)),
      path_(std::exchange(other.path_, "")),
      mode_(other.mode_),
      descriptor_(std::move(other.descriptor_)) {}

PendingFile &PendingFile::operator=(PendingFile &&other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(path_, other.path_);
  std::swap(mode_, other.mode_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

PendingFile::~PendingFile() {
  if (descriptor_ && !path_.empty()) unlink(path_.c_str());
}

// in a folder without locks nothing is cleaned up
void PendingFile::lock() { flock(descriptor_.get(), LOCK_EX | LOCK_NB); }

void PendingFile::finish(bool no_sync) {
  if (mode_ <= 0777 && fchmod(descriptor_.get(), mode_) != 0) fail_io("set the mode of", path_, errno);
  if (!no_sync) sync_file(descriptor_.get(), path_);
}

void PendingFile::rename(const std::string &name, bool replace, bool no_sync) {
  const std::string target = folder_ + "/" + name;
  if (replace) {
    if (::rename(path_.c_str(), target.c_str()) != 0) fail_io("write", target, errno);
  } else if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) fail(TANDEM_ERROR_IO, fmt::format("{} exists; use --force to replace it", target));
    if (errno != EINVAL && errno != ENOSYS) fail_io("write", target, errno);
    if (link(path_.c_str(), target.c_str()) != 0) {  // a file system without RENAME_NOREPLACE
      if (errno == EEXIST) fail(TANDEM_ERROR_IO, fmt::format("{} exists; use --force to replace it", target));
      fail_io("write", target, errno);
    }
    unlink(path_.c_str());
  }
  path_.clear();
  if (!no_sync) sync_folder(folder_);
}

FolderLock::FolderLock(const std::string &folder, std::uint32_t seconds)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!descriptor_) fail_io("open", folder, errno);
  constexpr auto kNap = std::chrono::milliseconds(20);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (std::chrono::steady_clock::now() >= end)
      fail(TANDEM_ERROR_IO, fmt::format("{} is locked by another process, since {} s", folder, seconds));
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace tandem::mpi
