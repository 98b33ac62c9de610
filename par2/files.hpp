// SPDX-License-Identifier: Apache-2.0
// Files on disk, by path.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/gate.hpp"
#include "base/io_error.hpp"
#include "base/text.hpp"

namespace tandem::par2 {

using namespace base;

// A regular file, for reading; also through a symbolic link. Never waits for a pipe's other end. Empty, with errno, if
// it cannot be opened. Throws if the process is out of descriptors or memory: that says nothing about the file.
base::Descriptor open_regular(const std::string &path);
// Whether errno of open_regular or status_of says that there is no regular file.
bool is_absent(int error_number) noexcept;
// Whether an error of open_regular or a read leaves it open what the file holds: it may be intact. Not so if there is
// no file, or if the medium has lost the bytes: they are damaged.
bool is_unreadable(int error_number) noexcept;

// Reads to the end of the file at most, and returns how many bytes. Blocks that the medium has lost become zeros.
// Throws if the file is_unreadable.
std::size_t read_past_errors(const base::Descriptor &file, const std::string &path, std::byte *bytes_out,
                             std::size_t byte_count, std::uint64_t offset);

struct FileStatus {
  std::uint64_t bytes;
  std::pair<dev_t, ino_t> identity;
  struct stat all;
};
// Since 1970, within the range of the type.
std::int64_t nanoseconds_of(const timespec &time) noexcept;
// Empty, with errno, unless it is a regular file.
std::optional<FileStatus> status_of(const std::string &path);

// The bytes of a slice; zeros follow up to its size.
struct Place {
  const std::string *path;
  std::uint64_t offset, bytes;
};

// The file that was opened last stays open: neighbours are often in one.
struct Opened {
  const void *key = nullptr;
  base::Descriptor file;

  template <class Open>
  int get(const void *other, const std::string &path, Open open) {
    if (key != other || !file) file = open();
    key = other;
    if (!file) base::fail_io("open", path, errno);
    return file.get();
  }
};

// Bytes of a slice. Returns false if the file is shorter than the place says.
bool read_place(const Place &place, std::uint64_t at, void *into, std::size_t count, Opened &opened);

void keep_times(int file, const struct stat &old, const std::string &path);
// Owner, permission bits and times, of a file that takes the place of another one. Giving a file away may not be
// permitted: then it has another owner.
void keep_status(int file, const struct stat &old, const std::string &path);

std::string joined(const std::string &folder, const std::string &name);

}  // namespace tandem::par2
