// SPDX-License-Identifier: Apache-2.0
#include "files/io.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/format.hpp"
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

// Beyond RLIMIT_FSIZE a write fails with EFBIG. The signal that comes with it would end the process.
class SizeSignalHeld {
 public:
  SizeSignalHeld() noexcept {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~SizeSignalHeld() {
    if (sigismember(&before_, SIGXFSZ) != 0) return;
    const int error = errno;
    const timespec at_once = {};
    while (sigtimedwait(&signals_, nullptr, &at_once) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  SizeSignalHeld(const SizeSignalHeld &) = delete;
  SizeSignalHeld &operator=(const SizeSignalHeld &) = delete;

 private:
  sigset_t signals_, before_;
};

std::size_t total_bytes(std::span<const iovec> pieces) noexcept {
  std::size_t bytes = 0;
  for (const iovec &piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// Waits until the descriptor can be read or written without blocking; false when stopped.
bool wait_for(int descriptor, short events, const std::atomic<bool> &stop) noexcept {
  for (;;) {
    if (stop.load(std::memory_order_relaxed)) {
      errno = ECANCELED;
      return false;
    }
    pollfd entry{descriptor, events, 0};
    const int ready = poll(&entry, 1, kNapMilliseconds);
    if (ready > 0) return true;  // also at an error or hang-up: the transfer then returns the error
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
  const SizeSignalHeld held;
  const std::size_t wanted = total_bytes(pieces);
  const std::int64_t done = transfer_all(pieces, offset, [descriptor](iovec *first, int count, off_t at) {
    return pwritev(descriptor, first, count, at);
  });
  if (done < 0) return false;
  if (static_cast<std::size_t>(done) != wanted) {
    errno = ENOSPC;  // a write of 0 bytes: the device is full
    return false;
  }
  return true;
}

bool set_length(int descriptor, std::uint64_t byte_count) noexcept {
  const SizeSignalHeld held;
  return ftruncate(descriptor, static_cast<off_t>(byte_count)) == 0;
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

void check_open_files(std::size_t staying_count, const std::string &what) {
  constexpr std::size_t kSpareCount = 8;  // for calls that open one or two at a time, and some for other parts of the
                                          // process
  std::vector<Descriptor> opened;
  while (opened.size() < staying_count + kSpareCount) {
    opened.emplace_back(opened.empty() ? open("/", O_PATH | O_CLOEXEC)
                                       : fcntl(opened.front().get(), F_DUPFD_CLOEXEC, 0));
    if (opened.back()) continue;
    const int error = errno;
    opened.clear();
    fail_io(base::format("open {} more files at once, for", staying_count + kSpareCount), what, error);
  }
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

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool unchanged(const struct stat &before, const struct stat &after) noexcept {
  return before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == after.st_mtim.tv_nsec && before.st_ctim.tv_sec == after.st_ctim.tv_sec &&
         before.st_ctim.tv_nsec == after.st_ctim.tv_nsec && before.st_dev == after.st_dev &&
         before.st_ino == after.st_ino;
}

}  // namespace tandem::files
