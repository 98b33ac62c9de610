#include "files/io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "files/error.hpp"
#include "files/format.hpp"

namespace tandem::files {
namespace {

constexpr int kNapMilliseconds = 50;

// One transfer of `pieces` at `offset`, repeated until all is done, the file ends (0) or an error (-1).
template <class Transfer>
std::int64_t transfer_all(std::span<iovec> pieces, std::uint64_t offset, Transfer transfer) noexcept {
  std::int64_t done = 0;
  while (!pieces.empty()) {
    const int count = static_cast<int>(std::min<std::size_t>(pieces.size(), IOV_MAX));
    const ssize_t moved = transfer(pieces.data(), count, static_cast<off_t>(offset));
    if (moved < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (moved == 0) break;
    done += moved;
    offset += static_cast<std::uint64_t>(moved);
    std::size_t left = static_cast<std::size_t>(moved);
    while (!pieces.empty() && left >= pieces.front().iov_len) {
      left -= pieces.front().iov_len;
      pieces = pieces.subspan(1);
    }
    if (left != 0) {
      pieces.front().iov_base = static_cast<std::byte *>(pieces.front().iov_base) + left;
      pieces.front().iov_len -= left;
    }
  }
  return done;
}

std::size_t total_bytes(std::span<const iovec> pieces) noexcept {
  std::size_t bytes = 0;
  for (const iovec &piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// Until the descriptor can be read or written without blocking; false when stopped.
bool wait_for(int descriptor, short events, const std::atomic<bool> &stop) noexcept {
  for (;;) {
    if (stop.load(std::memory_order_relaxed)) {
      errno = ECANCELED;
      return false;
    }
    pollfd entry{descriptor, events, 0};
    const int ready = poll(&entry, 1, kNapMilliseconds);
    if (ready > 0) return true;  // also at an error or hang-up: the transfer says which
    if (ready < 0 && errno != EINTR && errno != EAGAIN) return false;
  }
}

}  // namespace

void Descriptor::reset() noexcept {
  if (value_ >= 0) close(value_);
  value_ = -1;
}

Descriptor open_to_read(const std::string &path) noexcept {
  for (;;) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor >= 0 || errno != EINTR) return Descriptor(descriptor);
  }
}

std::int64_t read_at(int descriptor, std::byte *bytes_out, std::size_t byte_count, std::uint64_t offset) noexcept {
  iovec piece{bytes_out, byte_count};
  return read_pieces_at(descriptor, std::span(&piece, 1), offset);
}

std::int64_t read_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept {
  return transfer_all(pieces, offset,
                      [descriptor](iovec *first, int count, off_t at) { return preadv(descriptor, first, count, at); });
}

bool write_at(int descriptor, const std::byte *bytes, std::size_t byte_count, std::uint64_t offset) noexcept {
  iovec piece{const_cast<std::byte *>(bytes), byte_count};
  return write_pieces_at(descriptor, std::span(&piece, 1), offset);
}

bool write_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept {
  const std::size_t wanted = total_bytes(pieces);
  const std::int64_t done = transfer_all(pieces, offset, [descriptor](iovec *first, int count, off_t at) {
    return pwritev(descriptor, first, count, at);
  });
  if (done < 0) return false;
  if (static_cast<std::size_t>(done) != wanted) {
    errno = ENOSPC;  // a write of 0 bytes: nothing more fits
    return false;
  }
  return true;
}

std::int64_t read_stream(int descriptor, std::byte *bytes_out, std::size_t byte_count,
                         const std::atomic<bool> &stop) noexcept {
  std::size_t done = 0;
  while (done < byte_count) {
    if (!wait_for(descriptor, POLLIN, stop)) return -1;
    const ssize_t moved = read(descriptor, bytes_out + done, byte_count - done);
    if (moved < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return -1;
    }
    if (moved == 0) break;
    done += static_cast<std::size_t>(moved);
  }
  return static_cast<std::int64_t>(done);
}

bool write_stream(int descriptor, const std::byte *bytes, std::size_t byte_count,
                  const std::atomic<bool> &stop) noexcept {
  // A pipe that is ready takes PIPE_BUF bytes without blocking (pipe(7)), and promises no more than that.
  struct stat status;
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const std::size_t step = regular ? SSIZE_MAX / 2 : PIPE_BUF;
  while (byte_count != 0) {
    if (!wait_for(descriptor, POLLOUT, stop)) return false;
    const ssize_t moved = write(descriptor, bytes, std::min(step, byte_count));
    if (moved < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    if (moved == 0) {
      errno = ENOSPC;
      return false;
    }
    bytes += moved;
    byte_count -= static_cast<std::size_t>(moved);
  }
  return true;
}

void sync_folder(const std::string &folder) {
  const Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) fail_io("open", folder, errno);
  // Some file systems cannot sync a folder and say so with EINVAL; then there is nothing to be done.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) fail_io("sync", folder, errno);
}

PendingFile::PendingFile(std::string final_path, const std::string &unique, std::uint32_t mode)
    : final_path_(std::move(final_path)), mode_(mode) {
  temporary_path_ = fmt::format("{}/.{}.tandem-tmp", folder_of(final_path_), unique);
  replaced_path_ = fmt::format("{}/.{}.tandem-old", folder_of(final_path_), unique);
  const mode_t at_first = mode == kModeUnknown ? 0666 : 0600;
  descriptor_ = Descriptor(open(temporary_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, at_first));
  if (!descriptor_) fail_io("create", temporary_path_, errno);
  temporary_exists_ = true;
}

PendingFile::PendingFile(PendingFile &&other) noexcept
    : final_path_(std::move(other.final_path_)),
      temporary_path_(std::move(other.temporary_path_)),
      replaced_path_(std::move(other.replaced_path_)),
      descriptor_(std::move(other.descriptor_)),
      mode_(other.mode_),
      temporary_exists_(std::exchange(other.temporary_exists_, false)),
      renamed_(std::exchange(other.renamed_, false)),
      replaced_exists_(std::exchange(other.replaced_exists_, false)) {}

PendingFile::~PendingFile() {
  if (temporary_exists_) unlink(temporary_path_.c_str());
  if (replaced_exists_) unlink(replaced_path_.c_str());
}

void PendingFile::finish(bool no_sync) {
  if (mode_ != kModeUnknown && fchmod(descriptor_.get(), mode_ & 0777) != 0)
    fail_io("set the mode of", temporary_path_, errno);
  // A failed sync is final: the kernel may have dropped the bytes, and a second sync would succeed (fsync(2), NOTES).
  if (!no_sync && fsync(descriptor_.get()) != 0) fail_io("sync", temporary_path_, errno);
  descriptor_.reset();
}

void PendingFile::rename(bool force) {
  int result;
  if (force) {
    replaced_exists_ = link(final_path_.c_str(), replaced_path_.c_str()) == 0;
    result = ::rename(temporary_path_.c_str(), final_path_.c_str());
  } else {
    result = renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_NOREPLACE);
    if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // A file system without RENAME_NOREPLACE: link() does not replace either.
      result = link(temporary_path_.c_str(), final_path_.c_str());
      if (result == 0) unlink(temporary_path_.c_str());
    }
  }
  if (result != 0) fail_io("rename the finished file to", final_path_, errno);
  temporary_exists_ = false;
  renamed_ = true;
}

void PendingFile::take_back() noexcept {
  if (!renamed_) return;
  if (replaced_exists_) {
    ::rename(replaced_path_.c_str(), final_path_.c_str());
  } else {
    unlink(final_path_.c_str());
  }
  renamed_ = replaced_exists_ = false;
}

std::string folder_of(const std::string &path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string &path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

void random_bytes(std::span<std::uint8_t> bytes_out) {
  while (!bytes_out.empty()) {
    const ssize_t got = getrandom(bytes_out.data(), bytes_out.size(), 0);
    if (got < 0 && errno != EINTR) fail_io("read", "random bytes", errno);
    if (got > 0) bytes_out = bytes_out.subspan(static_cast<std::size_t>(got));
  }
}

std::string random_hexadecimal(std::size_t byte_count) {
  std::vector<std::uint8_t> bytes(byte_count);
  random_bytes(bytes);
  return hexadecimal(bytes);
}

bool unchanged(const struct stat &before, const struct stat &after) noexcept {
  return before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == after.st_mtim.tv_nsec && before.st_dev == after.st_dev &&
         before.st_ino == after.st_ino;
}

}  // namespace tandem::files
