// SPDX-License-Identifier: Apache-2.0
// What verify and repair found out about the files of a set, kept until it is printed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.hpp"

namespace tandem::cli {

struct FileFinding {
  tandem_files_finding finding;  // its pointers are no longer valid
  std::string path;
  std::vector<tandem_files_range> ranges;  // the first ones
};
using Findings = std::vector<FileFinding>;

// A tandem_files_report. Its user pointer is a Findings.
void collect(void *user, const tandem_files_finding *finding);

// What a call on a set gives.
template <class Result>
struct Reported {
  Findings findings;
  Result result = sized<Result>();
};

int exit_status_of_state(int32_t state);

// "shards/a.003.tandem: shard 3", printable.
std::string name_of(const FileFinding &file);
bool is_damaged(const FileFinding &file);
bool has_other_m(const Findings &findings);  // a resize is not finished
// "truncated to 1000 of 8574 bytes; 3 blocks damaged: 4, 7-8"; "" for an intact file.
std::string what_is_wrong(const FileFinding &file, const tandem_files_set &set);
// "shards/a.003.tandem holds shard 5"; "" if its name has the right index.
std::string misnamed(const FileFinding &file);
// Why the file has the id of its set as its name; "" if it has another. name: that of the set's files, or "".
std::string why_named_by_id(const std::string &path, const tandem_files_set &set, const std::string &name);
Json to_json(const FileFinding &file, const tandem_files_set &set);

// "NAME" and 3 of "shards/NAME.003.tandem"; nothing of another name.
std::optional<std::pair<std::string, std::uint32_t>> parse_shard_name(std::string_view path);

}  // namespace tandem::cli
