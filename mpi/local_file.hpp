// SPDX-License-Identifier: Apache-2.0
// Files of one rank: opening, writing in full, renaming.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tandem::mpi {

// "a/b/c": "a/b"; "c": ".".
std::string folder_of(const std::string &path);
std::string name_of(const std::string &path);

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

// All bytes, or an exception. read_at: false if the file ends before.
void write_at(int descriptor, const std::string &path, std::span<const std::byte> bytes, std::uint64_t offset);
bool read_at(int descriptor, const std::string &path, std::span<std::byte> bytes, std::uint64_t offset);

void sync_file(int descriptor, const std::string &path);
void sync_folder(const std::string &folder);

// A temporary beside its final file. Removed by the destructor unless it was renamed.
class PendingFile {
 public:
  PendingFile() = default;
  // Makes the file. Only its owner may read and write it before finish(). Throws if it exists. mode: its final
  // permission bits. Above 0777: 0666 less the process' umask, at once.
  PendingFile(std::string folder, std::string temporary_name, std::uint32_t mode);
  PendingFile(PendingFile &&other) noexcept;
  PendingFile &operator=(PendingFile &&other) noexcept;
  ~PendingFile();

  int descriptor() const { return descriptor_.get(); }
  const std::string &path() const { return path_; }
  void lock();                // as FORMAT.md, section 8: no process cleans it up while it is locked
  void finish(bool no_sync);  // sets its mode and syncs it
  // replace: an existing file is replaced. Syncs the folder unless no_sync.
  void rename(const std::string &name, bool replace, bool no_sync);

 private:
  std::string folder_, path_;
  std::uint32_t mode_ = 0600;
  Descriptor descriptor_;
};

// Waits so long for the lock (flock) of a folder, then throws. Folders that cannot be locked count as locked.
class FolderLock {
 public:
  FolderLock(const std::string &folder, std::uint32_t seconds);

 private:
  Descriptor descriptor_;
};

}  // namespace tandem::mpi
