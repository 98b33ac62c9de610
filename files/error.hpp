// SPDX-License-Identifier: Apache-2.0
// Errors of files/: of the operating system, and of the C API below.
#pragma once

#include "base/gate.hpp"
#include "base/io_error.hpp"

namespace tandem::files {

using base::check;
using base::Error;
using base::error_text;
using base::fail;
using base::fail_io;
using base::is_out_of_resources;

}  // namespace tandem::files
