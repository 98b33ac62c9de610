// SPDX-License-Identifier: Apache-2.0
// Files on disk, by path.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.hpp"

namespace tandem::par2 {

// A regular file, for reading; also through a symbolic link. Never waits for a pipe's other end. Empty, with errno, if
// it cannot be opened.
base::Descriptor open_regular(const std::string &path) noexcept;

struct FileStatus {
  std::uint64_t bytes;
  std::pair<dev_t, ino_t> identity;
  struct stat all;
};
// Empty unless it is a regular file.
std::optional<FileStatus> status_of(const std::string &path);

std::string joined(const std::string &folder, const std::string &name);

}  // namespace tandem::par2
