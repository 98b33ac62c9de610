// SPDX-License-Identifier: Apache-2.0
// Members that are regular files or block devices.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/folder.hpp"
#include "volume/bytes.hpp"
#include "volume/member.hpp"

#if defined(__linux__)
#include <linux/fs.h>
#endif

namespace tandem::volume {
namespace {

constexpr std::size_t kMostBytesPerCall = std::size_t{1} << 30;

[[noreturn]] void fail_with(MemberProblem problem, const std::string &name, const char *what, int number) {
  throw MemberError(problem, text(name, ": ", what, ": ", std::strerror(number)));
}

std::string identity_from(const struct stat &status) {
  if (S_ISBLK(status.st_mode)) return text("device ", status.st_rdev);
  return text("file ", status.st_dev, " ", status.st_ino);
}

class FileMember : public Member {
 public:
  FileMember(const std::string &name, const MemberAccess &access) : name_(name) {
    const int flags = (access.write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | (access.create ? O_CREAT : 0);
    descriptor_ = base::Descriptor(::open(name.c_str(), flags, 0666));
    if (!descriptor_) {
      const bool missing = errno == ENOENT || errno == ENXIO || errno == ENOTDIR || errno == ENODEV || errno == EIO;
      fail_with(missing ? MemberProblem::missing : MemberProblem::denied, name, "cannot be opened", errno);
    }
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0) fail_with(MemberProblem::failed, name, "fstat", errno);
    is_file_ = S_ISREG(status.st_mode);
    if (!is_file_ && !S_ISBLK(status.st_mode))
      throw MemberError(MemberProblem::denied, name + ": is neither a regular file nor a block device");
    identity_ = identity_from(status);
    if (::flock(descriptor_.get(), (access.write ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_with(MemberProblem::failed, name, "flock", errno);
      throw MemberError(MemberProblem::locked, name + ": is locked: the volume is in use by another process or call");
    }
    const off_t end = ::lseek(descriptor_.get(), 0, SEEK_END);
    if (end < 0) fail_with(MemberProblem::failed, name, "lseek", errno);
    size_bytes_ = static_cast<std::uint64_t>(end);
    if (access.create && is_file_) sync_folder();
  }

  std::uint64_t size_bytes() const override { return size_bytes_; }
  std::string identity() const override { return identity_; }
  bool is_cached() const override { return true; }

  void read(std::uint64_t offset, std::byte *to, std::size_t bytes) override {
    const std::int64_t done = base::read_at(descriptor_.get(), to, bytes, offset);
    if (done < 0) fail_with(MemberProblem::failed, name_, "read", errno);
    if (const std::size_t missing = bytes - static_cast<std::size_t>(done); missing != 0)
      throw MemberError(MemberProblem::failed, text(name_, ": ends ", missing, " bytes early"));
  }

  void write(std::uint64_t offset, const std::byte *from, std::size_t bytes) override {
    while (bytes != 0) {
      const ssize_t count =
          ::pwrite(descriptor_.get(), from, std::min(bytes, kMostBytesPerCall), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail_with(MemberProblem::failed, name_, "write", count < 0 ? errno : EIO);
      offset += static_cast<std::uint64_t>(count);
      from += count;
      bytes -= static_cast<std::size_t>(count);
    }
  }

  void sync() override {
    if (::fdatasync(descriptor_.get()) != 0) fail_with(MemberProblem::failed, name_, "fdatasync", errno);
  }

  void trim(std::uint64_t offset, std::uint64_t bytes) noexcept override {
    if (is_file_) {
      static_cast<void>(::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    static_cast<off_t>(offset), static_cast<off_t>(bytes)));
    } else {
      std::uint64_t range[] = {offset, bytes};
      static_cast<void>(::ioctl(descriptor_.get(), BLKDISCARD, range));
    }
  }

  void grow(std::uint64_t bytes) override {
    if (bytes <= size_bytes_) return;
    if (!is_file_)
      throw MemberError(MemberProblem::denied, text(name_, ": has ", size_bytes_, " bytes, ", bytes, " are needed"));
    if (::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0)
      fail_with(MemberProblem::failed, name_, "ftruncate", errno);
    size_bytes_ = bytes;
  }

 private:
  // A synced file can be missing after a power cut until its folder is synced, too.
  void sync_folder() const {
    const std::string folder = base::folder_of(name_);
    const base::Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!descriptor) return;  // a folder may allow access, but not reading
    if (::fsync(descriptor.get()) != 0 && errno != EINVAL) fail_with(MemberProblem::failed, folder, "fsync", errno);
  }

  std::string name_, identity_;
  base::Descriptor descriptor_;
  bool is_file_ = false;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace

bool is_nbd_uri(const std::string &name) {
  return name.starts_with("nbd://") || name.starts_with("nbds://") || name.starts_with("nbd+unix://") ||
         name.starts_with("nbds+unix://");
}

std::unique_ptr<Member> open_member(const std::string &name, const MemberAccess &access) {
  if (is_nbd_uri(name)) return open_nbd_member(name, access);
  return std::make_unique<FileMember>(name, access);
}

std::string identity_of(const std::string &name) {
  if (is_nbd_uri(name)) return name;
  struct stat status {};
  return ::stat(name.c_str(), &status) == 0 ? identity_from(status) : name;
}

}  // namespace tandem::volume
