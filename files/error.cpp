#include "files/error.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace tandem::files {

void fail_io(std::string_view what, const std::string &path, int error_number) {
  // generic_category().message() is thread-safe, strerror() is not.
  std::string message = fmt::format("cannot {} {}: {} (errno {})", what, path,
                                    std::generic_category().message(error_number), error_number);
  rlimit limit = {};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    message += fmt::format("; this process may have {} files open (RLIMIT_NOFILE, `ulimit -n`)", limit.rlim_cur);
  fail(TANDEM_ERROR_IO, std::move(message));
}

void check(tandem_status status) {
  if (status != TANDEM_OK) fail(status, tandem_last_error_message());
}

}  // namespace tandem::files
