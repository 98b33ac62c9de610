// SPDX-License-Identifier: Apache-2.0
#include "par2/files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tandem::par2 {

base::Descriptor open_regular(const std::string &path) {
  base::Descriptor file = base::open_to_read(path);
  if (!file && base::is_out_of_resources(errno)) fail_io("open", path, errno);
  struct stat status;
  if (file) {
    const int error = fstat(file.get(), &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
    if (error != 0) file.reset();
    errno = error;
  }
  return file;
}

bool is_absent(int error_number) noexcept {
  constexpr int kAbsent[] = {ENOENT, ENOTDIR, EINVAL, ENXIO};
  return std::ranges::find(kAbsent, error_number) != std::end(kAbsent);
}

bool is_unreadable(int error_number) noexcept {
  // What file systems and block devices return for bad sectors and wrong checksums.
  constexpr int kLost[] = {0, EIO, EBADMSG, EUCLEAN, ENODATA, EILSEQ};
  return !is_absent(error_number) && std::ranges::find(kLost, error_number) == std::end(kLost);
}

std::size_t read_past_errors(const base::Descriptor &file, const std::string &path, std::byte *bytes_out,
                             std::size_t byte_count, std::uint64_t offset) {
  constexpr std::size_t kBlock = 4096;
  const std::int64_t whole = base::read_at(file.get(), bytes_out, byte_count, offset);
  if (whole >= 0) return static_cast<std::size_t>(whole);
  for (std::size_t done = 0; done < byte_count;) {
    const std::size_t block = std::min(byte_count - done, kBlock - (offset + done) % kBlock);
    const std::int64_t got = base::read_at(file.get(), bytes_out + done, block, offset + done);
    if (got < 0 && is_unreadable(errno)) fail_io("read", path, errno);
    if (got < 0) std::memset(bytes_out + done, 0, block);
    if (got >= 0 && static_cast<std::size_t>(got) < block) return done + static_cast<std::size_t>(got);
    done += block;
  }
  return byte_count;
}

std::optional<FileStatus> status_of(const std::string &path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return {};
  errno = EINVAL;
  if (!S_ISREG(status.st_mode)) return {};
  return FileStatus{static_cast<std::uint64_t>(status.st_size), {status.st_dev, status.st_ino}, status};
}

std::int64_t nanoseconds_of(const timespec &time) noexcept {
  constexpr std::int64_t kSecond = 1000000000, kMost = INT64_MAX / kSecond - 1;
  return std::clamp<std::int64_t>(time.tv_sec, -kMost, kMost) * kSecond + time.tv_nsec;
}

bool read_place(const Place &place, std::uint64_t at, void *into, std::size_t count, Opened &opened) {
  const auto bytes = static_cast<std::byte *>(into);
  const std::size_t stored = at < place.bytes ? std::min<std::uint64_t>(count, place.bytes - at) : 0;
  std::memset(bytes + stored, 0, count - stored);
  if (stored == 0) return true;
  const int file = opened.get(place.path, *place.path, [&] { return open_regular(*place.path); });
  const std::int64_t got = base::read_at(file, bytes, stored, place.offset + at);
  if (got < 0) fail_io("read", *place.path, errno);
  return static_cast<std::size_t>(got) == stored;
}

void keep_times(int file, const struct stat &old, const std::string &path) {
  const timespec times[2] = {old.st_atim, old.st_mtim};
  if (futimens(file, times) != 0) base::fail_io("set the times of", path, errno);
}

void keep_status(int file, const struct stat &old, const std::string &path) {
  if (fchown(file, old.st_uid, old.st_gid) != 0 && errno != EPERM) base::fail_io("set the owner of", path, errno);
  if (fchmod(file, old.st_mode & 0777) != 0) base::fail_io("set the mode of", path, errno);
  keep_times(file, old, path);
}

std::string joined(const std::string &folder, const std::string &name) {
  return folder.empty() || folder.ends_with('/') ? folder + name : folder + "/" + name;
}

}  // namespace tandem::par2
