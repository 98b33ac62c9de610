// SPDX-License-Identifier: Apache-2.0
// Errors and arguments of mpi/.
#pragma once

#include "base/gate.hpp"
#include "base/io_error.hpp"
#include "base/options.hpp"
#include "base/text.hpp"

namespace tandem::mpi {

using base::check;
using base::check_result;
using base::Error;
using base::fail;
using base::fail_io;
using base::guarded;
using base::read_needed_options;
using base::sized;
using base::text;
using base::write_result;

}  // namespace tandem::mpi
