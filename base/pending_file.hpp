// SPDX-License-Identifier: Apache-2.0
// The one way to replace a file: write beside it, sync, rename, sync the folder. After a crash or a power cut the name
// has the old content or the new one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/folder.hpp"

namespace tandem::base {

// A file that is written under a temporary name in its final folder. Removed unless it was renamed or released.
class PendingFile {
 public:
  PendingFile() = default;  // none
  // The temporary is always new: a symbolic link or an older file in its place is refused. It is locked while it is
  // open. If dead temporaries are cleaned up, the caller has locked the folder. mode: permission bits; above 0777: 0666
  // less the process' umask.
  PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name, std::uint32_t mode);
  // A file that another writer has made; that writer sets its mode, and renames or removes it.
  PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name);
  PendingFile(PendingFile &&other) noexcept { *this = std::move(other); }
  PendingFile &operator=(PendingFile &&other) noexcept;
  ~PendingFile();

  explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  int descriptor() const noexcept { return descriptor_.get(); }
  std::string path() const { return folder_->path_of(name_); }

  // Sets the mode, and syncs unless told not to: the bytes are complete.
  void finish(bool no_sync);
  // Gives it its name and syncs the folder's entries to disk.
  void rename(const std::string &final_name, bool replace, bool no_sync);
  void release() noexcept { exists_ = false; }
  // With its lock. The file stays.
  Descriptor take() &&noexcept {
    release();
    return std::move(descriptor_);
  }
  // Others write it, by its name.
  void close() noexcept { descriptor_.reset(); }

 private:
  std::shared_ptr<Folder> folder_;
  std::string name_;
  Descriptor descriptor_;
  std::uint32_t mode_ = 0;
  bool exists_ = false;
};

}  // namespace tandem::base
