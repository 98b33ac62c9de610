// SPDX-License-Identifier: Apache-2.0
// Errors inside the library: one exception type with a status and a sentence with the numbers. base/gate.hpp is the one
// gate that turns it into a tandem_status.
#pragma once

#include <exception>
#include <string>

#include "base/text.hpp"
#include "tandem/tandem.h"

namespace tandem::base {

class Error : public std::exception {
 public:
  Error(tandem_status status, std::string message) : status_(status), message_(std::move(message)) {}
  tandem_status status() const noexcept { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  tandem_status status_;
  std::string message_;
};

[[noreturn]] inline void fail(tandem_status status, std::string message) { throw Error(status, std::move(message)); }
// With a message of several parts, as text() takes them.
template <class First, class Second, class... More>
[[noreturn]] void fail(tandem_status status, const First &first, const Second &second, const More &...more) {
  throw Error(status, text(first, second, more...));
}

// The message of an exception, for the log.
inline std::string what_of(const std::exception_ptr &error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception &each) {
    return each.what();
  } catch (...) {
    return "unknown";
  }
}

}  // namespace tandem::base
