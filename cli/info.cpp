// SPDX-License-Identifier: Apache-2.0
// tandem info PATH...
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/finding.hpp"
#include "cli/sets.hpp"

namespace tandem::cli {
namespace {

struct InfoFlags {
  SetFlags set;
  OutputFlags output;
};

using Shards = std::vector<tandem_files_shard>;

Json to_json(const tandem_files_set &set, const Shards &shards) {
  Json object;
  put(object, set);
  object["enough"] = set.shards_suffice != 0;
  for (const tandem_files_shard &shard : shards) {
    object["files"].push_back({{"path", shard.path},
                               {"shard", shard.index},
                               {"bytes", shard.file_bytes},
                               {"start_damaged", (shard.condition & TANDEM_FILES_START_DAMAGED) != 0},
                               {"end_damaged", (shard.condition & TANDEM_FILES_END_DAMAGED) != 0},
                               {"wrong_length", (shard.condition & TANDEM_FILES_WRONG_LENGTH) != 0},
                               {"other_m", (shard.condition & TANDEM_FILES_OTHER_M) != 0}});
  }
  return object;
}

void print(const ChosenSet &chosen, const Shards &shards) {
  const tandem_files_set &set = chosen.set;
  fmt::print("{}\n", label_of(chosen));
  fmt::print("  content  {} bytes, digest {}, mode {}\n", set.content_bytes, hexadecimal(set.digest),
             mode_text(set.mode));
  fmt::print("  code     {} data + {} parity shards, matrix {}\n", set.k, set.m, matrix_name(set.matrix));
  fmt::print("  layout   {} of {} blocks, {} bytes a block, {} bytes a shard file\n",
             plural(set.stripe_count, "stripe"), set.k + set.m, set.block_bytes, set.shard_file_bytes);
  fmt::print("  shards   {} of {} here, {} needed{}: {}\n", set.shard_count, set.k + set.m, set.k,
             set.any_k_suffice != 0 ? "" : " or more, depending on which (the matrix is not MDS)",
             set.shards_suffice != 0 ? "enough, if their blocks are intact" : "not enough");
  const std::size_t width = std::max<std::size_t>(fmt::formatted_size("{}", set.k + set.m - 1), 3);
  for (const tandem_files_shard &shard : shards) {
    std::string damage;
    if (shard.condition & TANDEM_FILES_START_DAMAGED) damage += ", start damaged";
    if (shard.condition & TANDEM_FILES_END_DAMAGED) damage += ", end damaged";
    if (shard.condition & TANDEM_FILES_WRONG_LENGTH) damage += fmt::format(", {} bytes long", shard.file_bytes);
    if (shard.condition & TANDEM_FILES_OTHER_M) damage += ", resize not finished";
    if (const std::string why = why_named_by_id(shard.path, set, chosen.name); !why.empty()) damage += ", " + why;
    fmt::print("  {:{}} {:6}  {}{}\n", shard.index, width, shard.index < set.k ? "data" : "parity",
               printable(shard.path), damage);
  }
}

int info_in(const InfoFlags &flags, Places &places) {
  recover(places.paths, false);
  const SearchOwner found = search(places.paths, flags.output, places.recursive);
  note_unread(found, places);
  const int exit_status = places.all_read() ? kExitDone : kExitInputOutput;
  Json object = {
      {"command", "info"}, {"exit_status", exit_status}, {"all_read", places.all_read()}, {"sets", Json::array()}};
  for (const ChosenSet &chosen : named_sets(found, flags.set)) {
    if (flags.output.json) {
      object["sets"].push_back(to_json(chosen.set, shards_of(found, chosen.index)));
      object["sets"].back()["name"] = chosen.name;
    } else if (!flags.output.quiet) {
      print(chosen, shards_of(found, chosen.index));
    }
  }
  if (flags.output.json) {
    object["ignored"] = Json::array();
    for (std::size_t i = 0; const char *why = tandem_files_search_left_out(found.get(), TANDEM_FILES_IGNORED, i); ++i)
      object["ignored"].push_back(why);
    print_json(object);
  }
  return exit_status;
}

int info(const InfoFlags &flags) {
  Places places = places_of(flags.set);
  return run_in(places, [&] { return info_in(flags, places); });
}

}  // namespace

void add_info_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<InfoFlags>();
  CLI::App *command = app.add_subcommand("info", "List the sets, and which shards of each are here");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files", nullptr);
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return info(*flags); }; });
}

}  // namespace tandem::cli
