// SPDX-License-Identifier: Apache-2.0
// tandem verify --locate: raw shard files, which have no checksums.
#pragma once

#include "cli/commands.hpp"

namespace tandem::cli {

struct LocateFlags {
  bool is_on = false, repair = false;
  std::uint32_t k = 0, m = 0, groups = 0;
  std::string matrix;
};
void add_locate_flags(CLI::App &command, LocateFlags &flags);

// paths: of the k+m shards in order, "-" for one that is lost.
int locate(const LocateFlags &flags, const std::vector<std::string> &paths, const ContextFlags &context_flags,
           const OutputFlags &output);

}  // namespace tandem::cli
