// SPDX-License-Identifier: Apache-2.0
// The one gate between exceptions inside and status codes outside.
#pragma once

#include <cstddef>
#include <new>
#include <string_view>

#include "base/error.hpp"

namespace tandem::base {

// Keeps `message` for tandem_last_error_message() on this thread, cut to fit, and returns `status`.
tandem_status refuse(tandem_status status, std::string_view message) noexcept;

// The message of this thread's last failure; "" before the first one.
const char *last_error_message() noexcept;

// Runs `body` (returning void) and turns its exceptions into a status.
template <class Body>
tandem_status guarded(Body &&body) noexcept {
  try {
    body();
    return TANDEM_OK;
  } catch (const base::Error &error) {
    return refuse(error.status(), error.what());
  } catch (const std::bad_alloc &) {
    return refuse(TANDEM_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return refuse(TANDEM_ERROR_INTERNAL, error.what());
  } catch (...) {
    return refuse(TANDEM_ERROR_INTERNAL, "an unknown exception");
  }
}

// A caller's pointer that must not be NULL.
struct Argument {
  const char *name;
  const void *pointer;
};

// The status of a call with a NULL pointer: INVALID_ARGUMENT, "context is NULL".
tandem_status refuse_null(const char *name) noexcept;

// An array of a length that the compiler knows, so that it stays in registers.
template <std::size_t kCount, class Body>
tandem_status guarded(const Argument (&arguments)[kCount], Body &&body) noexcept {
  for (const Argument &each : arguments)
    if (each.pointer == nullptr) [[unlikely]]
      return refuse_null(each.name);
  return guarded(body);
}

}  // namespace tandem::base
