// How encode and decode tell what they did.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/files.h"

namespace tandem::cli {

nlohmann::ordered_json report(const char *command, const tandem_files_result &result, const tandem_context_info &info);
// "0.41 s, 2.62 GB/s of data (coding 24.10 GB/s a thread), kernel avx512-gfni, 2 threads"
std::string speed(const tandem_files_result &result, const tandem_context_info &info);
std::string matrix_name(std::int32_t matrix);
// Whether any k of the shards are enough: of par1 3 + 4, for one, they are not.
bool any_k_are_enough(std::uint32_t k, std::uint32_t m, std::int32_t matrix);
// Whether these shards of the set give back its data shards, if their blocks are intact.
bool are_enough(const tandem_files_set &set, const std::vector<tandem_files_shard> &shards);

}  // namespace tandem::cli
