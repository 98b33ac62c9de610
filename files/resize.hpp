// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/search.hpp"
#include "tandem/files.h"

namespace tandem::files {

// Everything but struct_bytes of the result.
tandem_files_repair_result resize(tandem_context *context, const Search &search, std::uint32_t m,
                                  const tandem_files_repair_options &options);

}  // namespace tandem::files
