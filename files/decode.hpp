// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/outcome.hpp"
#include "files/search.hpp"
#include "tandem/files.h"

namespace tandem::files {

Outcome decode(tandem_context *context, const Search &search, const tandem_files_decode_options &options);

}  // namespace tandem::files
