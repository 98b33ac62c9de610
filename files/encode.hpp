// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/outcome.hpp"
#include "tandem/files.h"

namespace tandem::files {

Outcome encode(tandem_context *context, const tandem_files_encode_options &options);

}  // namespace tandem::files
