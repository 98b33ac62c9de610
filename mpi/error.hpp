// SPDX-License-Identifier: Apache-2.0
// Errors of mpi/.
#pragma once

#include "base/gate.hpp"
#include "base/io_error.hpp"

namespace tandem::mpi {

using base::check;
using base::Error;
using base::fail;
using base::fail_io;
using base::guarded;

}  // namespace tandem::mpi
