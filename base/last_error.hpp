// SPDX-License-Identifier: Apache-2.0
// The last error message of each thread, in libtandem alone: other libraries call tandem_set_last_error.
#pragma once

#include <string_view>

#include "tandem/tandem.h"

namespace tandem::base {

// Keeps `message`, cut to fit, and returns `status`.
tandem_status keep_last_error(tandem_status status, std::string_view message) noexcept;

// The message of this thread's last failure; "" before the first one.
const char *last_error_message() noexcept;

}  // namespace tandem::base
