// SPDX-License-Identifier: Apache-2.0
// The one gate between exceptions inside and status codes outside.
#pragma once

#include <cstddef>
#include <new>

#include "base/error.hpp"
#include "tandem/tools.h"

namespace tandem::base {

// The status of a call of the C API. A failure becomes an exception with its message.
inline void check(tandem_status status) {
  if (status != TANDEM_OK) fail(status, tandem_last_error_message());
}

// Runs `body` (returning void) and turns its exceptions into a status and this thread's last message, which libtandem
// keeps for all libraries.
template <class Body>
tandem_status guarded(Body &&body) noexcept {
  try {
    body();
    return TANDEM_OK;
  } catch (const base::Error &error) {
    return tandem_set_last_error(error.status(), error.what());
  } catch (const std::bad_alloc &) {
    return tandem_set_last_error(TANDEM_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception &error) {
    return tandem_set_last_error(TANDEM_ERROR_INTERNAL, error.what());
  } catch (...) {
    return tandem_set_last_error(TANDEM_ERROR_INTERNAL, "an unknown exception");
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
