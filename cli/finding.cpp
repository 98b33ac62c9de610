// SPDX-License-Identifier: Apache-2.0
#include "cli/finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tandem::cli {
namespace {

constexpr std::size_t kMostKept = 1000, kMostListed = 10;

std::string list(const FileFinding &file) {
  std::string text;
  for (std::size_t i = 0; i < std::min(file.ranges.size(), kMostListed); ++i) {
    const auto [first, count] = file.ranges[i];
    text += i == 0 ? "" : ", ";
    text += count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
  }
  return file.finding.bad_range_count > kMostListed ? text + ", ..." : text;
}

const char *length_word(const FileFinding &file, const tandem_files_set &set) {
  if ((file.finding.condition & TANDEM_FILES_MISSING) != 0) return "missing";
  return file.finding.file_bytes < set.shard_file_bytes   ? "truncated"
         : file.finding.file_bytes > set.shard_file_bytes ? "extended"
                                                          : "right";
}

}  // namespace

void collect(void *user, const tandem_files_finding *finding) {
  FileFinding file{*finding, finding->path, {}};
  const std::size_t kept = std::min(finding->bad_range_count, kMostKept);
  file.ranges.assign(finding->bad_ranges, finding->bad_ranges + kept);
  static_cast<Findings *>(user)->push_back(std::move(file));
}

int exit_status_of_state(int32_t state) {
  constexpr int kStatuses[] = {kExitDone, kExitDamageFound, kExitNotRecoverable};
  return kStatuses[state];
}

std::string name_of(const FileFinding &file) {
  return fmt::format("{}shard {}", file.path.empty() ? "" : printable(file.path) + ": ", file.finding.index);
}

bool is_damaged(const FileFinding &file) { return file.finding.condition != 0 || file.finding.bad_block_count != 0; }

bool has_other_m(const Findings &findings) {
  return std::ranges::any_of(
      findings, [](const FileFinding &file) { return (file.finding.condition & TANDEM_FILES_OTHER_M) != 0; });
}

std::string what_is_wrong(const FileFinding &file, const tandem_files_set &set) {
  const std::uint32_t condition = file.finding.condition;
  if ((condition & TANDEM_FILES_MISSING) != 0) return "missing";
  std::string text;
  const auto add = [&text](const std::string &words) { text += (text.empty() ? "" : "; ") + words; };
  if ((condition & TANDEM_FILES_WRONG_LENGTH) != 0)
    add(file.finding.file_bytes < set.shard_file_bytes
            ? fmt::format("truncated to {} of {} bytes", file.finding.file_bytes, set.shard_file_bytes)
            : fmt::format("extended: {} bytes, not {}", file.finding.file_bytes, set.shard_file_bytes));
  if ((condition & TANDEM_FILES_START_DAMAGED) != 0) add("header damaged");
  if ((condition & TANDEM_FILES_END_DAMAGED) != 0 && (condition & TANDEM_FILES_WRONG_LENGTH) == 0)
    add("trailer damaged");
  if ((condition & TANDEM_FILES_OTHER_M) != 0) add("resize not finished (header with another m)");
  if (file.finding.bad_block_count != 0)
    add(fmt::format("{} damaged: {}", plural(file.finding.bad_block_count, "block"), list(file)));
  if (file.finding.lost_block_count != 0)
    add(fmt::format("{} of these cannot be recovered", file.finding.lost_block_count));
  return text;
}

std::string why_named_by_id(const std::string &path, const tandem_files_set &set, const std::string &name) {
  const auto parsed = parse_shard_name(path);
  if (!parsed || parsed->first != hexadecimal(set.set_id)) return "";
  return fmt::format("named by the set's id, because {} was taken; `{} repair` renames it once that is free",
                     name.empty() ? "its own name" : printable(fmt::format("{}.{:03}.tandem", name, parsed->second)),
                     command_name());
}

std::optional<std::pair<std::string, std::uint32_t>> parse_shard_name(std::string_view path) {
  constexpr std::string_view kEnd = ".tandem";
  if (!path.ends_with(kEnd)) return std::nullopt;
  path.remove_suffix(kEnd.size());
  if (const std::size_t slash = path.find_last_of('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  const std::size_t point = path.find_last_of('.');
  if (point == std::string_view::npos) return std::nullopt;
  const std::string_view number = path.substr(point + 1);
  if (number.size() < 3 || number.size() > 4 || number.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::uint32_t index = 0;
  for (const char digit : number) index = 10 * index + static_cast<std::uint32_t>(digit - '0');
  if (number != fmt::format("{:03}", index)) return std::nullopt;
  return std::pair(std::string(path.substr(0, point)), index);
}

std::string misnamed(const FileFinding &file) {
  const auto parts = parse_shard_name(file.path);
  if (!parts || parts->second == file.finding.index) return "";
  return fmt::format("{} holds shard {}, not the one that its name says", file.path, file.finding.index);
}

Json to_json(const FileFinding &file, const tandem_files_set &set) {
  Json object = {{"shard", file.finding.index}};
  if (!file.path.empty()) object["path"] = file.path;
  object["length"] = length_word(file, set);
  object["bytes"] = file.finding.file_bytes;
  object["header_damaged"] = (file.finding.condition & TANDEM_FILES_START_DAMAGED) != 0;
  object["trailer_damaged"] = (file.finding.condition & TANDEM_FILES_END_DAMAGED) != 0;
  object["other_m"] = (file.finding.condition & TANDEM_FILES_OTHER_M) != 0;
  object["bad_block_count"] = file.finding.bad_block_count;
  object["lost_block_count"] = file.finding.lost_block_count;
  object["bad_blocks"] = Json::array();
  for (const auto &[first, count] : file.ranges) object["bad_blocks"].push_back({{"first", first}, {"count", count}});
  return object;
}

}  // namespace tandem::cli
