// SPDX-License-Identifier: Apache-2.0
#include "base/gate.hpp"

#include <cstdio>

namespace tandem::base {

tandem_status refuse_null(const char *name) noexcept {
  char text[64];
  std::snprintf(text, sizeof text, "%.55s is NULL", name);
  return tandem_set_last_error(TANDEM_ERROR_INVALID_ARGUMENT, text);
}

}  // namespace tandem::base
