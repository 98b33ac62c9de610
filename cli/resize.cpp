// SPDX-License-Identifier: Apache-2.0
// tandem resize PATH... -m M
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/finding.hpp"
#include "cli/sets.hpp"

namespace tandem::cli {
namespace {

struct ResizeFlags {
  SetFlags set;
  std::uint32_t m = 0;
  std::vector<std::string> folders;
  WriteFlags write;
  OutputFlags output;
  ContextFlags context;
};

using Resized = Reported<tandem_files_repair_result>;

// "written", "removed"; nullptr: it stays.
const char *what_became_of(const FileFinding &file) {
  return file.finding.action == TANDEM_FILES_REBUILD  ? "written"
         : file.finding.action == TANDEM_FILES_REMOVE ? "removed"
                                                      : nullptr;
}

void print(const ChosenSet &chosen, const ResizeFlags &flags, const Resized &resized) {
  const tandem_files_repair_result &result = resized.result;
  const std::string would_be = flags.write.dry_run ? "would be " : "";
  for (const FileFinding &file : resized.findings)
    if (const char *word = what_became_of(file)) fmt::print("{}: {}{}\n", name_of(file), would_be, word);
  if (result.mended_file_count + result.rebuilt_file_count + result.removed_file_count == 0) {
    fmt::print("{}: {} + {} shards already\n", label_of(chosen), chosen.set.k, flags.m);
    return;
  }
  fmt::print("{}: {} {} + {} shards: {} written, {} removed\n", label_of(chosen),
             flags.write.dry_run ? "would have" : "now", chosen.set.k, flags.m,
             plural(result.rebuilt_file_count, "file"), plural(result.removed_file_count, "file"));
  if (result.left_block_count != 0)
    fmt::print("{} damaged: run `{} repair`\n",
               result.left_block_count == 1 ? "1 block is" : fmt::format("{} blocks are", result.left_block_count),
               command_name());
  fmt::print("{} read, {} written, {:.2f} s\n", size(result.read_bytes), size(result.written_bytes), result.seconds);
}

Json to_json(const ChosenSet &chosen, const ResizeFlags &flags, const Resized &resized) {
  Json object = {{"command", "resize"},
                 {"dry_run", flags.write.dry_run},
                 {"set_id", hexadecimal(chosen.set.set_id)},
                 {"name", chosen.name},
                 {"k", chosen.set.k},
                 {"m", flags.m},
                 {"m_before", chosen.set.m}};
  put(object, resized.result);
  object.erase("state");  // with a larger m, old parity is not read
  object["files"] = Json::array();
  for (const FileFinding &file : resized.findings)
    if (const char *word = what_became_of(file))
      object["files"].push_back({{"shard", file.finding.index}, {"path", file.path}, {"action", word}});
  return object;
}

int resize_found(const ResizeFlags &flags, Places &places) {
  recover(places.paths, flags.write.dry_run, flags.write.lock_wait_seconds);
  const SearchOwner found = search(places.all(), flags.output, places.recursive);
  note_unread(found, places);
  const ChosenSet chosen = only_set(found, flags.set);
  const std::string set_id = hexadecimal(chosen.set.set_id);
  const std::vector<std::string> folders = expand_index(flags.folders, chosen.set.k + flags.m);
  const std::vector<const char *> folder_pointers = pointers(folders);
  auto options = sized<tandem_files_repair_options>();
  options.set_id_prefix = set_id.c_str();
  if (!folders.empty()) {
    options.folders = folder_pointers.data();
    options.folder_count = folder_pointers.size();
  }
  flags.write.set(options);
  if (flags.m <= chosen.set.m && !flags.context.timeline.empty()) options.force = 0;  // it is for the timeline
  options.thread_count = flags.context.thread_count;
  options.note = print_note;
  Resized resized;
  options.report = collect;
  options.report_user = &resized.findings;
  const ContextOwner context = make_context(flags.context);
  try {
    run_with_progress(
        "resize", flags.output, options,
        [&] { return tandem_files_resize(context.get(), found.get(), flags.m, &options, &resized.result); },
        {{flags.m < chosen.set.m ? "checking" : "writing", true}, {"reading back", false}});
  } catch (Failure &failure) {
    if (failure.status == TANDEM_ERROR_DAMAGED && chosen.set.shards_suffice != 0)
      failure.exit_status = kExitDamageFound;  // repair can mend it
    throw;
  }
  if (flags.output.json) {
    print_json(to_json(chosen, flags, resized));
  } else if (!flags.output.quiet) {
    print(chosen, flags, resized);
  }
  return kExitDone;
}

int resize(const ResizeFlags &flags) {
  Places places = places_of(flags.set);
  return run_in(places, [&] { return resize_found(flags, places); });
}

}  // namespace

void add_resize_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<ResizeFlags>();
  CLI::App *command = app.add_subcommand("resize", "Add parity shards to a set, or drop some, in place");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files", nullptr);
  command
      ->add_option("-m,--parity", flags->m,
                   "Parity shards that the set will have. The matrix must compute the same parity shard for every m, "
                   "as the default matrix of encode does")
      ->required();
  command
      ->add_option("-o,--output", flags->folders,
                   "Folder for new shard files, as with encode; default: the folders of the set, in turn")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  add_write_flags(*command, flags->write, "Let new shards replace other files that have their names",
                  "Only say what would be done");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return resize(*flags); }; });
}

}  // namespace tandem::cli
