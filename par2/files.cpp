// SPDX-License-Identifier: Apache-2.0
#include "par2/files.hpp"

#include <fcntl.h>

#include <cerrno>

namespace tandem::par2 {

base::Descriptor open_regular(const std::string &path) noexcept {
  base::Descriptor file;
  do {
    file = base::Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  } while (!file && errno == EINTR);
  struct stat status;
  if (file && (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))) {
    file.reset();
    errno = EINVAL;
  }
  return file;
}

std::optional<FileStatus> status_of(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return FileStatus{static_cast<std::uint64_t>(status.st_size), {status.st_dev, status.st_ino}, status};
}

std::string joined(const std::string &folder, const std::string &name) {
  return folder.empty() || folder.ends_with('/') ? folder + name : folder + "/" + name;
}

}  // namespace tandem::par2
