#include "files/error.hpp"

#include <fmt/format.h>

#include <system_error>

namespace tandem::files {

void fail(tandem_status status, std::string message) { throw Error(status, std::move(message)); }

void fail_io(std::string_view what, const std::string &path, int error_number) {
  // generic_category().message() is thread-safe, strerror() is not.
  fail(TANDEM_ERROR_IO, fmt::format("cannot {} {}: {} (errno {})", what, path,
                                    std::generic_category().message(error_number), error_number));
}

void check(tandem_status status) {
  if (status != TANDEM_OK) fail(status, tandem_last_error_message());
}

}  // namespace tandem::files
