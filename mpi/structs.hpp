// SPDX-License-Identifier: Apache-2.0
// Arguments of mpi.h.
#pragma once

#include <cstddef>
#include <string>

#include "base/options.hpp"
#include "mpi/error.hpp"

namespace tandem::mpi {

using base::check_result;
using base::sized;
using base::write_result;

// The options tell a call what to do: without them there is nothing to do.
template <class Options>
Options read_options(const Options *given, const char *name) {
  if (given == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + " is NULL");
  return base::read_options(given, name);
}

// A caller's strings joined, for World::require_equal.
inline std::string listed(const char *const *strings, std::size_t count, const char *name) {
  if (strings == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + " is NULL");
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (strings[i] == nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, std::string(name) + "[" + std::to_string(i) + "] is NULL");
    text += i == 0 ? "" : ", ";
    text += strings[i];
  }
  return text;
}

}  // namespace tandem::mpi
