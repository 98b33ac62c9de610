// SPDX-License-Identifier: Apache-2.0
#include "base/io_error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include "base/text.hpp"

namespace tandem::base {

std::string error_text(int error_number) {
  // generic_category().message() is thread-safe, strerror() is not.
  return base::text(std::generic_category().message(error_number), " (errno ", error_number, ")");
}

bool is_out_of_resources(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM;
}

void fail_io(std::string_view what, const std::string &path, int error_number) {
  std::string message = base::text("cannot ", what, " ", path, ": ", error_text(error_number));
  rlimit limit = {};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    message += base::text("; this process may have ", limit.rlim_cur, " files open (RLIMIT_NOFILE, `ulimit -n`)");
  if (error_number == EINVAL && what == "sync")
    message += "; a file system that cannot sync needs no_sync, `--no-sync`";
  fail(error_number == ENOMEM ? TANDEM_ERROR_OUT_OF_MEMORY : TANDEM_ERROR_IO, std::move(message));
}

}  // namespace tandem::base
