// SPDX-License-Identifier: Apache-2.0
// Errors of mpi/.
#pragma once

#include "base/gate.hpp"
#include "base/io_error.hpp"
#include "base/text.hpp"

namespace tandem::mpi {

using base::check;
using base::Error;
using base::fail;
using base::fail_io;
using base::guarded;
using base::text;

}  // namespace tandem::mpi
