// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "base/os.hpp"

namespace tandem::base {
namespace {

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
    os::discard_signal(SIGXFSZ, signals_);
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

}  // namespace

void Descriptor::reset() noexcept {
  if (number_ >= 0) close(number_);
  number_ = -1;
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

bool allocate(int descriptor, std::uint64_t offset, std::uint64_t byte_count) noexcept {
  const SizeSignalHeld held;
  errno = os::allocate(descriptor, static_cast<off_t>(offset), static_cast<off_t>(byte_count));
  return errno == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
}

void start_writeback(int descriptor) noexcept {
  const int error = errno;
  os::start_writeback(descriptor);
  errno = error;
}

bool unchanged(const struct stat &before, const struct stat &after) noexcept {
  const auto same = [](const timespec &a, const timespec &b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; };
  return before.st_size == after.st_size && same(os::write_time(before), os::write_time(after)) &&
         same(os::change_time(before), os::change_time(after)) && before.st_dev == after.st_dev &&
         before.st_ino == after.st_ino;
}

}  // namespace tandem::base
