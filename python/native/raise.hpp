// SPDX-License-Identifier: Apache-2.0
// How the extension raises errors: exceptions of tandem_ec.errors, with a status and a sentence with the numbers.
#pragma once

#include <sstream>
#include <string>

#include "tandem/tandem.h"

namespace tandem_ec {

// Raises the exception of `status`. The GIL must be held.
[[noreturn]] void raise(tandem_status status, const std::string &message);

// Raises if a call of this thread failed, with its message.
inline void check(tandem_status status) {
  if (status != TANDEM_OK) raise(status, tandem_last_error_message());
}

template <class... Parts>
std::string text(const Parts &...parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void refuse(const Parts &...parts) {
  raise(TANDEM_ERROR_INVALID_ARGUMENT, text(parts...));
}

}  // namespace tandem_ec
