// Errors of this room: a status and a sentence with the numbers.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "tandem/tandem.h"

namespace tandem::files {

class Error : public std::exception {
 public:
  Error(tandem_status status, std::string message) : status_(status), message_(std::move(message)) {}
  tandem_status status() const noexcept { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  tandem_status status_;
  std::string message_;
};

[[noreturn]] void fail(tandem_status status, std::string message);

// TANDEM_ERROR_IO: "cannot write shards/a.003.tandem: No space left on device (errno 28)".
[[noreturn]] void fail_io(std::string_view what, const std::string &path, int error_number);

// A failed call of tandem.h keeps its status and its sentence.
void check(tandem_status status);

// Sets the calling thread's tandem_last_error_message(). Defined by api/, which owns that buffer.
void keep_last_error(std::string_view message) noexcept;

}  // namespace tandem::files
