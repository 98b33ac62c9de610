// SPDX-License-Identifier: Apache-2.0
// Status names, the last error message, the version.
#include "base/last_error.hpp"
#include "tandem/tools.h"

using namespace tandem;

extern "C" {

const char *tandem_last_error_message(void) { return base::last_error_message(); }

tandem_status tandem_set_last_error(tandem_status status, const char *message) {
  return base::keep_last_error(status, message ? message : tandem_status_name(status));
}

const char *tandem_status_name(tandem_status status) {
  switch (status) {
#define TANDEM_NAME(value) \
  case value:              \
    return #value;
    TANDEM_NAME(TANDEM_OK)
    TANDEM_NAME(TANDEM_ERROR_INVALID_ARGUMENT)
    TANDEM_NAME(TANDEM_ERROR_UNSUPPORTED)
    TANDEM_NAME(TANDEM_ERROR_UNAVAILABLE)
    TANDEM_NAME(TANDEM_ERROR_OUT_OF_MEMORY)
    TANDEM_NAME(TANDEM_ERROR_TOO_LARGE)
    TANDEM_NAME(TANDEM_ERROR_OVERLAP)
    TANDEM_NAME(TANDEM_ERROR_NOT_MDS)
    TANDEM_NAME(TANDEM_ERROR_NOT_RECOVERABLE)
    TANDEM_NAME(TANDEM_ERROR_CANCELLED)
    TANDEM_NAME(TANDEM_ERROR_DEVICE)
    TANDEM_NAME(TANDEM_ERROR_IO)
    TANDEM_NAME(TANDEM_ERROR_DAMAGED)
    TANDEM_NAME(TANDEM_ERROR_INTERNAL)
#undef TANDEM_NAME
    default:
      return "TANDEM_STATUS_UNKNOWN";
  }
}

#define TANDEM_TEXT_OF(x) #x
#define TANDEM_TEXT(x) TANDEM_TEXT_OF(x)
const char *tandem_version_string(void) {
  return TANDEM_TEXT(TANDEM_VERSION_MAJOR) "." TANDEM_TEXT(TANDEM_VERSION_MINOR) "." TANDEM_TEXT(TANDEM_VERSION_PATCH);
}

}  // extern "C"
