// SPDX-License-Identifier: Apache-2.0
// The exception inside libraries on top of the public headers, and its conversion to a status.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "tandem/tandem.h"
#include "tandem/tools.h"

namespace tandem::client {

class Error : public std::runtime_error {
 public:
  Error(tandem_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
  tandem_status status() const noexcept { return status_; }

 private:
  tandem_status status_;
};

[[noreturn]] inline void fail(tandem_status status, const std::string &message) { throw Error(status, message); }

// The status of a call of libtandem. Throws with its message.
inline void check(tandem_status status) {
  if (status != TANDEM_OK) throw Error(status, tandem_last_error_message());
}

// Runs `body` and turns its exceptions into a status and the thread's message.
template <class Body>
tandem_status guarded(Body &&body) noexcept {
  try {
    body();
    return TANDEM_OK;
  } catch (const Error &error) {
    return tandem_set_last_error(error.status(), error.what());
  } catch (const std::bad_alloc &) {
    return tandem_set_last_error(TANDEM_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return tandem_set_last_error(TANDEM_ERROR_INTERNAL, error.what());
  } catch (...) {
    return tandem_set_last_error(TANDEM_ERROR_INTERNAL, "an unknown exception");
  }
}

}  // namespace tandem::client
