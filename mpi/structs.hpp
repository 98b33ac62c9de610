// SPDX-License-Identifier: Apache-2.0
// Arguments of mpi.h.
#pragma once

#include <cstddef>
#include <string>

#include "base/options.hpp"
#include "mpi/error.hpp"

namespace tandem::mpi {

using base::check_result;
using base::read_needed_options;
using base::sized;
using base::write_result;

// A caller's strings joined, for World::require_equal.
inline std::string listed(const char *const *strings, std::size_t count, const char *name) {
  if (strings == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is NULL");
  return base::join(base::read_strings(strings, count, name), ", ");
}

}  // namespace tandem::mpi
