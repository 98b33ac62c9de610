// SPDX-License-Identifier: Apache-2.0
// How encode and decode tell what they did.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/files.h"

namespace tandem::cli {

nlohmann::ordered_json report(const char *command, const tandem_files_result &result, const tandem_context_info &info);
// "0.41 s, 2.62 GB/s of data (coding 24.10 GB/s a thread), kernel avx512-gfni, 2 threads"
std::string speed(const tandem_files_result &result, const tandem_context_info &info);
std::string matrix_name(std::int32_t matrix);

}  // namespace tandem::cli
