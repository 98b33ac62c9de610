// SPDX-License-Identifier: Apache-2.0
// tandem decode PATH... -o FILE
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/output.hpp"
#include "cli/sets.hpp"

namespace tandem::cli {
namespace {

struct DecodeFlags {
  SetFlags set;
  std::string output_path;
  WriteFlags write;
  OutputFlags output;
  ContextFlags context;
  bool salvage = false;
};

struct Hole {
  std::uint64_t first_byte, byte_count;
};

std::string list_of(const std::vector<Hole> &holes) {
  constexpr std::size_t kMostListed = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(holes.size(), kMostListed); ++i)
    text += fmt::format("  bytes {} to {} are lost ({})\n", holes[i].first_byte,
                        holes[i].first_byte + holes[i].byte_count - 1, size(holes[i].byte_count));
  if (holes.size() > kMostListed)
    text += fmt::format("  and {} more ranges; --json lists all\n", holes.size() - kMostListed);
  return text;
}

// It needs a file to write, and copies data blocks or recovers stripes from k shards. Whether these blocks are intact
// is not known without reading them all.
bool can_salvage(const Output &output, const SearchOwner &found, const ChosenSet &chosen) {
  if (output.is_stream() || !found) return false;
  const std::vector<tandem_files_shard> shards = shards_of(found, chosen.index);
  return chosen.set.shard_count >= chosen.set.k ||
         std::ranges::any_of(shards, [&](const tandem_files_shard &shard) { return shard.index < chosen.set.k; });
}

// Salvage is for a set that has lost too much. A complete set beside it must not take its place.
ChosenSet set_to_decode(const DecodeFlags &flags, const SearchOwner &found) {
  if (flags.salvage && flags.set.set_id.empty()) {
    const std::vector<ChosenSet> sets = chosen_sets(found, flags.set);
    if (sets.size() > 1)
      fail(kExitWrongUsage, sets.size(), " sets found, choose one for --salvage with --set ID",
           flags.set.name.empty() ? " or --name NAME" : "", ": ", list_of(sets));
    return sets[0];
  }
  return only_set(found, flags.set);
}

int decode_found(const DecodeFlags &flags, const Output &output, Places &places, const SearchOwner &found,
                 Ranks *ranks) {
  const ContextOwner context = make_context(flags.context);
  ChosenSet chosen;
  std::string set_id = flags.set.set_id;
  if (found) {
    note_unread(found, places);
    chosen = set_to_decode(flags, found);
    set_id = hexadecimal(chosen.set.set_id);
  }
  auto options = sized<tandem_files_decode_options>();
  if (!set_id.empty()) options.set_id_prefix = set_id.c_str();
  if (output.descriptor >= 0) {
    options.output_descriptor = output.descriptor;
  } else {
    options.output_path = output.path.c_str();
  }
  flags.write.set(options);
  options.thread_count = flags.context.thread_count;
  std::vector<Hole> holes;
  options.salvage = flags.salvage;
  options.hole = [](void *user, std::uint64_t first_byte, std::uint64_t byte_count) {
    static_cast<std::vector<Hole> *>(user)->push_back({first_byte, byte_count});
  };
  options.hole_user = &holes;
  auto result = sized<tandem_files_result>();
  try {
    run_with_progress("decode", flags.output, options,
                      [&] {
                        return ranks != nullptr ? ranks->decode(context.get(), places.paths, options, &result)
                                                : tandem_files_decode(context.get(), found.get(), &options, &result);
                      },
                      {{"", !output.is_stream()}});
  } catch (Failure &failure) {
    if (failure.status == TANDEM_ERROR_NOT_RECOVERABLE && !flags.salvage && can_salvage(output, found, chosen))
      failure.message += fmt::format("; `{} decode --salvage` writes what can be recovered", command_name());
    throw;
  }
  if (ranks != nullptr && !ranks->leads()) return kExitDone;
  const std::string written = holes.empty() ? flags.output_path : output.path + ".partial";  // links are resolved

  const tandem_context_info info = query(context);
  const std::string note = result.bad_block_count == 0
                               ? ""
                               : fmt::format("note: found {}; `{} verify` lists the damage",
                                             plural(result.bad_block_count, "damaged block"), program_name());
  if (flags.output.json) {
    Json object = report("decode", result, info);
    object["shards_read"] = result.shards_read;
    object["rebuilt_block_count"] = result.rebuilt_block_count;
    object["bad_block_count"] = result.bad_block_count;
    object["output"] = written;
    if (found) object["name"] = chosen.name;
    if (flags.salvage) {
      object["hole_bytes"] = result.hole_bytes;
      object["holes"] = Json::array();
      for (const Hole &hole : holes)
        object["holes"].push_back({{"begin_bytes", hole.first_byte}, {"end_bytes", hole.first_byte + hole.byte_count}});
    }
    object["dry_run"] = flags.write.dry_run;
    print_json(object);
  } else if (!flags.output.quiet) {
    const std::string name = flags.write.dry_run        ? "nothing written"
                             : flags.output_path == "-" ? "standard output"
                                                        : printable(written);
    std::string text;
    if (holes.empty())
      text = fmt::format("{}: {} from {}, its digest {} is correct\n", name, size(result.content_bytes),
                         plural(result.shards_read, "shard"), hexadecimal(result.digest));
    else
      text = fmt::format("{}: {} of {} salvaged from {}; {} of zeros stand for what is lost\n", name,
                         size(result.content_bytes - result.hole_bytes), size(result.content_bytes),
                         plural(result.shards_read, "shard"), size(result.hole_bytes)) +
             list_of(holes);
    text += fmt::format("{}, {} rebuilt\n", speed(result, info), plural(result.rebuilt_block_count, "block"));
    if (output.is_stream() && output.descriptor != STDERR_FILENO) {
      // The stream is complete. If standard error is full, that is no failure.
      if (!note.empty()) text += fmt::format("{}: {}\n", program_name(), note);
      std::fputs(text.c_str(), stderr);
    } else {
      fmt::print("{}", text);
      if (!note.empty()) complain(note);
    }
  } else if (!note.empty()) {
    complain(note);
  }
  return holes.empty() ? kExitDone : kExitNotRecoverable;
}

int decode(DecodeFlags flags, Ranks *ranks) {
  if (ranks != nullptr) ranks->adapt(flags.context);
  const Output output = output_of(flags.output_path);
  if (flags.output.json && output.is_standard_output())
    fail(kExitWrongUsage, "--json and -o ", flags.output_path, " both write standard output; choose one");
  if (flags.salvage && output.is_stream())
    fail(kExitWrongUsage, "--salvage needs -o FILE: ", flags.output_path,
         " is a stream, which cannot say where its holes are");
  Places places = places_of(flags.set);
  if (ranks == nullptr || ranks->leads()) recover(places.paths, flags.write.dry_run, flags.write.lock_wait_seconds);
  if (ranks != nullptr)
    return decode_found(flags, output, places, nullptr, ranks);  // each rank searches; one rank cannot repeat it alone
  // A stream cannot be written again.
  return with_search(
      places.paths, flags.output, flags.write.dry_run || !output.is_stream(),
      [&](const SearchOwner &found) { return decode_found(flags, output, places, found, nullptr); }, places.recursive);
}

}  // namespace

void add_decode_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<DecodeFlags>();
  CLI::App *command = app.add_subcommand("decode", "Put a file back together from any k of its shard files");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files, in any order and by any name",
                invocation.ranks);
  command->add_option("-o,--output", flags->output_path, "The file to write; - writes standard output")
      ->type_name("FILE")
      ->required();
  if (invocation.ranks == nullptr)  // one process
    command->add_flag("--salvage", flags->salvage,
                      "Where too much is lost, write what can be recovered to FILE.partial, with zeros for the rest, "
                      "and list the holes; exit status 4");
  add_write_flags(*command, flags->write, "Replace the output if it exists",
                  "Decode and compare the digest, write nothing");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return decode(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
