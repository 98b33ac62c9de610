// SPDX-License-Identifier: Apache-2.0
#include "base/pending_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/io_error.hpp"

namespace tandem::base {

PendingFile::PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name, std::uint32_t mode)
    : folder_(std::move(folder)), name_(std::move(temporary_name)), mode_(mode) {
  const mode_t at_first = mode_ > 0777 ? 0666 : 0600;
  descriptor_ = folder_->open_file(name_, O_RDWR | O_CREAT | O_EXCL, at_first);
  if (!descriptor_) fail_io("create", path(), errno);
  exists_ = true;
  lock_file(descriptor_);
}

PendingFile::PendingFile(std::shared_ptr<Folder> folder, std::string temporary_name)
    : folder_(std::move(folder)),
      name_(std::move(temporary_name)),
      descriptor_(folder_->open_file(name_, O_RDWR)),
      mode_(UINT32_MAX) {
  if (!descriptor_) fail_io("open", path(), errno);
}

PendingFile &PendingFile::operator=(PendingFile &&other) noexcept {
  std::swap(folder_, other.folder_);
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(mode_, other.mode_);
  std::swap(exists_, other.exists_);
  return *this;
}

PendingFile::~PendingFile() {
  if (exists_) unlinkat(folder_->descriptor(), name_.c_str(), 0);
}

void PendingFile::finish(bool no_sync) {
  if (mode_ <= 0777 && fchmod(descriptor_.get(), mode_) != 0) fail_io("set the mode of", path(), errno);
  // A failed sync is final: the kernel may have dropped the bytes, and a second sync would succeed (fsync(2), NOTES).
  if (!no_sync && fsync(descriptor_.get()) != 0) fail_io("sync", path(), errno);
}

void PendingFile::rename(const std::string &final_name, bool replace, bool no_sync) {
  folder_->rename(name_, final_name, replace);
  exists_ = false;
  if (!no_sync) folder_->sync();
}

}  // namespace tandem::base
