// SPDX-License-Identifier: Apache-2.0
#include "files/io.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/format.hpp"

namespace tandem::files {
namespace {

constexpr int kNapMilliseconds = 50;

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
    fail_io(base::text("open ", staying_count + kSpareCount, " more files at once, for"), what, error);
  }
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace tandem::files
