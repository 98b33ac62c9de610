// SPDX-License-Identifier: Apache-2.0
// Errors of files/: of the operating system, and of the C API below.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace tandem::files {

using base::Error;
using base::fail;

// TANDEM_ERROR_IO: "cannot write shards/a.003.tandem: No space left on device (errno 28)".
[[noreturn]] void fail_io(std::string_view what, const std::string &path, int error_number);

// "No space left on device (errno 28)".
std::string error_text(int error_number);

// A failed call of tandem.h keeps its status and its message.
void check(tandem_status status);

}  // namespace tandem::files
