// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.hpp"

#include <cerrno>

namespace tandem::base {

bool Descriptor::write_all(const void *bytes, std::size_t count) const noexcept {
  const char *next = static_cast<const char *>(bytes);
  while (count != 0) {
    const ssize_t written = write(number_, next, count);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;  // a regular file never does that
    if (written <= 0) return false;
    next += written;
    count -= static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace tandem::base
