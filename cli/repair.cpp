// SPDX-License-Identifier: Apache-2.0
// tandem repair PATH...
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

struct RepairFlags {
  SetFlags set;
  std::vector<std::string> folders;
  WriteFlags write;
  OutputFlags output;
  ContextFlags context;
};

const char *action_word(const FileFinding &file) {
  constexpr const char *kWords[] = {"nothing", "mend", "rebuild", "give up"};  // remove: only resize does it
  return kWords[file.finding.action];
}

// "Mended in place", "Would be rebuilt".
std::string action_sentence(const FileFinding &file, bool dry_run) {
  switch (file.finding.action) {
    case TANDEM_FILES_MEND:
      return dry_run ? "Would be mended in place" : "Mended in place";
    case TANDEM_FILES_REBUILD:
      return dry_run ? "Would be rebuilt" : "Rebuilt";
    case TANDEM_FILES_NOTHING:
      return fmt::format("Left to `{} resize`", command_name());
    default:
      return "Cannot be recovered";
  }
}

using Repaired = Reported<tandem_files_repair_result>;

int exit_status_of(const tandem_files_repair_result &result) {
  return std::max<int>(exit_status_of_state(result.state), result.crowded_folder_count != 0 ? kExitDamageFound : 0);
}

Json to_json(const ChosenSet &chosen, const Repaired &repaired, bool dry_run) {
  Json object = {{"command", "repair"}, {"dry_run", dry_run}, {"set_id", hexadecimal(chosen.set.set_id)},
                 {"name", chosen.name}, {"state", ""},        {"k", chosen.set.k},
                 {"m", chosen.set.m}};
  put(object, repaired.result);
  object["files"] = Json::array();
  object["other_sets"] = chosen.others;
  for (const FileFinding &file : repaired.findings) {
    if (!is_damaged(file)) continue;
    object["files"].push_back(to_json(file, chosen.set));
    object["files"].back()["action"] = action_word(file);
    object["files"].back()["left_bad_count"] = file.finding.left_bad_count;
  }
  return object;
}

void print_files(const ChosenSet &chosen, const Repaired &repaired, bool dry_run, const char *indent) {
  for (const FileFinding &file : repaired.findings) {
    if (!is_damaged(file)) continue;
    fmt::print("{}{}: {}. {}", indent, name_of(file), what_is_wrong(file, chosen.set), action_sentence(file, dry_run));
    if (file.finding.action != TANDEM_FILES_GIVE_UP && file.finding.left_bad_count != 0)
      fmt::print(", but for {}", plural(file.finding.left_bad_count, "block"));
    fmt::print("\n");
  }
  for (const FileFinding &file : repaired.findings)
    if (const std::string why = why_named_by_id(file.path, chosen.set, chosen.name); !why.empty())
      fmt::print("{}{}: {}\n", indent, name_of(file), why);
  for (const std::string &other : chosen.others) fmt::print("{}{}\n", indent, printable(other));
}

std::string what_was_done(const ChosenSet &chosen, const tandem_files_repair_result &result, bool dry_run) {
  constexpr const char *kNow[] = {"now intact", "now not whole, but recoverable", "cannot be recovered completely"};
  constexpr const char *kFound[] = {"intact", "recoverable", "cannot be recovered completely"};
  const bool changes = result.mended_file_count + result.rebuilt_file_count + result.moved_file_count != 0;
  if (result.state == TANDEM_FILES_INTACT && !changes) return colored(result.state, kFound[result.state]);
  const char *would_be = dry_run ? "would be " : "";
  std::string text = colored(result.state, dry_run ? kFound[result.state] : kNow[result.state]);
  if (result.left_shard_count > chosen.set.m)
    text += fmt::format(": {} missing, {} allowed", plural(result.left_shard_count, "shard"), chosen.set.m);
  if (result.state == TANDEM_FILES_LOST && !changes)
    return text + (dry_run ? "; nothing would be changed" : "; nothing was changed");
  return fmt::format("{}; {} {}mended in place ({}), {} {}rebuilt", text, plural(result.mended_file_count, "file"),
                     would_be, plural(result.mended_block_count, "block"), plural(result.rebuilt_file_count, "file"),
                     would_be) +
         (result.moved_file_count != 0 ? fmt::format(", {} {}moved", result.moved_file_count, would_be) : "");
}

void print_rest(const ChosenSet &chosen, const Repaired &repaired, const char *indent) {
  const tandem_files_repair_result &result = repaired.result;
  if (result.lost_stripe_count != 0)
    fmt::print("{}{} of {} cannot be recovered\n", indent, result.lost_stripe_count,
               plural(chosen.set.stripe_count, "stripe"));
  if (result.left_shard_count != 0)
    fmt::print("{}{} {}\n", indent, plural(result.left_shard_count, "shard"),
               has_other_m(repaired.findings) ? fmt::format("not rebuilt: run `{} resize`", command_name())
                                              : "cannot be rebuilt");
  if (result.crowded_folder_count != 0)
    fmt::print("{}name an empty folder, or give one with -o, and the shards of a crowded folder are spread\n", indent);
}

void print(const ChosenSet &chosen, const Repaired &repaired, bool dry_run) {
  const tandem_files_repair_result &result = repaired.result;
  print_files(chosen, repaired, dry_run, "");
  fmt::print("set {}: {}\n", hexadecimal(chosen.set.set_id), what_was_done(chosen, result, dry_run));
  print_rest(chosen, repaired, "");
  fmt::print("{} read, {} written and read back, {:.2f} s\n", size(result.read_bytes), size(result.written_bytes),
             result.seconds);
}

// new_folders: for missing shards, where there are several sets. ranks: those of a job, or NULL.
Repaired repair_set(const RepairFlags &flags, const ContextOwner &context, const SearchOwner &found,
                    const ChosenSet &chosen, const std::string &set_id, const Places &places,
                    const std::vector<std::string> &new_folders, const std::string &action, Ranks *ranks) {
  const std::vector<std::string> folders = expand_index(flags.folders, chosen.set.k + chosen.set.m);
  const std::vector<const char *> folder_pointers = pointers(folders), new_pointers = pointers(new_folders);
  Repaired repaired;
  auto options = sized<tandem_files_repair_options>();
  if (!set_id.empty()) options.set_id_prefix = set_id.c_str();
  if (folders.empty()) {
    options.new_folders = new_pointers.data();
    options.new_folder_count = new_pointers.size();
  } else {
    options.folders = folder_pointers.data();
    options.folder_count = folder_pointers.size();
  }
  flags.write.set(options);
  options.thread_count = flags.context.thread_count;
  options.note = print_note;
  options.report = collect;
  options.report_user = &repaired.findings;
  run_with_progress(action, flags.output, options,
                    [&] {
                      return ranks != nullptr
                                 ? ranks->repair(context.get(), places.paths, options, &repaired.result)
                                 : tandem_files_repair(context.get(), found.get(), &options, &repaired.result);
                    },
                    {{"checking", false}, {"writing", true}, {"reading back", false}});
  return repaired;
}

int repair_each(const RepairFlags &flags, const ContextOwner &context, const SearchOwner &found,
                const std::vector<ChosenSet> &sets, const Places &places) {
  EachSet each("repair", flags.output);
  const FoldersOfSets folders(found, places);
  Totals<tandem_files_repair_result> total;
  each.run(found, sets, false, [&](const ChosenSet &chosen, const std::string &action, Json &object) {
    const Repaired repaired = repair_set(flags, context, found, chosen, hexadecimal(chosen.set.set_id), places,
                                         folders.of(chosen), action, nullptr);
    const tandem_files_repair_result &result = repaired.result;
    total.add(result);
    if (flags.output.json) {
      object = to_json(chosen, repaired, flags.write.dry_run);
    } else if (!flags.output.quiet) {
      fmt::print("{}: {}\n", label_of(chosen), what_was_done(chosen, result, flags.write.dry_run));
      print_files(chosen, repaired, flags.write.dry_run, "  ");
      print_rest(chosen, repaired, "  ");
    }
    if (result.state == TANDEM_FILES_INTACT && result.crowded_folder_count != 0) each.add_crowded();
    return exit_status_of(result);
  });
  if (!flags.output.json && !flags.output.quiet)
    fmt::print("{}, {} read, {} written and read back, {:.2f} s\n", each.counts(), size(total.sum.read_bytes),
               size(total.sum.written_bytes), total.sum.seconds);
  return each.finish(places, total.json());
}

int repair_found(const RepairFlags &flags, Places &places, Ranks *ranks) {
  const bool leads = ranks == nullptr || ranks->leads();
  if (leads) recover(places.paths, flags.write.dry_run, flags.write.lock_wait_seconds);
  const SearchOwner found = search(places.all(), flags.output, places.recursive);
  if (leads) note_unread(found, places);
  const ContextOwner context = make_context(flags.context);
  const std::vector<ChosenSet> sets =
      ranks != nullptr ? std::vector<ChosenSet>{only_set(found, flags.set)} : chosen_sets(found, flags.set);
  if (ranks == nullptr && (sets.size() > 1 || flags.set.recursive))
    return repair_each(flags, context, found, sets, places);
  const std::string set_id = ranks != nullptr ? flags.set.set_id : hexadecimal(sets[0].set.set_id);
  const Repaired repaired = repair_set(flags, context, found, sets[0], set_id, places, {}, "repair", ranks);
  const int of_set = exit_status_of(repaired.result);
  const int exit_status = places.all_read() ? of_set : std::max<int>(of_set, kExitInputOutput);
  if (!leads) return exit_status;
  if (flags.output.json) {
    Totals<tandem_files_repair_result> total;
    total.add(repaired.result);
    Json object = to_json(sets[0], repaired, flags.write.dry_run);
    object["exit_status"] = of_set;
    print_sets("repair", Json::array({std::move(object)}), total.json(), exit_status, places.all_read(),
               Json::object());
  } else if (!flags.output.quiet) {
    print(sets[0], repaired, flags.write.dry_run);
  }
  return exit_status;
}

int repair(RepairFlags flags, Ranks *ranks) {
  if (ranks != nullptr) ranks->adapt(flags.context);
  Places places = places_of(flags.set);
  return run_in(places, [&] { return repair_found(flags, places, ranks); });
}

}  // namespace

void add_repair_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<RepairFlags>();
  const bool is_one_set = invocation.ranks != nullptr;
  CLI::App *command =
      app.add_subcommand("repair", fmt::format("Mend {}: rewrite damaged blocks, rebuild missing shard files",
                                               is_one_set ? "a set" : "the sets that are found"));
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files", invocation.ranks);
  command
      ->add_option(
          "-o,--output", flags->folders,
          "Folder for missing shard files, as with encode; default: where they were, as far as the other files "
          "tell")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  add_write_flags(*command, flags->write, "Let missing shards replace other files that have their names",
                  "Only say what would be done; exit status 1 if there is something");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return repair(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
