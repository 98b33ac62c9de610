// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "files/ranges.hpp"
#include "files/search.hpp"
#include "files/team.hpp"
#include "tandem/files.h"

namespace tandem::files {

// The results of reading every block of a set.
struct Findings {
  std::vector<Ranges> bad;                // by file of the set
  std::vector<std::uint64_t> lost_count;  // of these, blocks in stripes that cannot be recovered
  Ranges lost;                            // those stripes
  Ranges readable;                        // stripes for which at least one file is long enough
  std::uint32_t worst_bad_count = 0;      // in one stripe
  std::uint64_t read_bytes = 0;
  bool recoverable = true;
  std::optional<Hash128> digest;  // if no data block is bad
};

// Called by all processes of the team. All get the same result. Uses threads, rate and progress of the options.
Findings inspect(tandem_context *context, const FoundSet &set, const tandem_files_verify_options &options,
                 const Team &team);

// Called by all processes of the team. Search::choose_to_code; throws also if they see other files.
const FoundSet &choose_set(const Search &search, const char *set_id_prefix, const Team &team);

// Stripes that some file is long enough for. All others are lost without a look, however many a header claims.
Ranges readable_stripes(const FoundSet &set);

// Reports each shard file, and each shard without one, by index. `more` adds to what verify knows.
struct Finding {
  std::size_t file;  // place in FoundSet::files; kNoFile
  tandem_files_finding report;
};
constexpr std::size_t kNoFile = SIZE_MAX;
void report(const FoundSet &set, const Findings &findings, tandem_files_report report, void *user,
            const std::function<void(Finding &)> &more = {});

// Everything but struct_bytes of the result.
tandem_files_verify_result verify(tandem_context *context, const Search &search,
                                  const tandem_files_verify_options &options);

}  // namespace tandem::files
