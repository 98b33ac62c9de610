// SPDX-License-Identifier: Apache-2.0
// Errors of mpi/.
#pragma once

#include <string>

#include "client/error.hpp"

namespace tandem::mpi {

using client::check;
using client::Error;
using client::fail;
using client::guarded;

// "cannot write /a/b: No space left on device".
[[noreturn]] void fail_io(const char *what, const std::string &path, int error_number);

}  // namespace tandem::mpi
