// tandem repair PATH...
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/finding.hpp"

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
  constexpr const char *kWords[] = {"nothing", "mend", "rebuild", "give up"};
  return kWords[file.finding.action];
}

// "Mended in place", "Would be rebuilt".
std::string action_sentence(const FileFinding &file, bool dry_run) {
  switch (file.finding.action) {
    case TANDEM_FILES_MEND:
      return dry_run ? "Would be mended in place" : "Mended in place";
    case TANDEM_FILES_REBUILD:
      return dry_run ? "Would be rebuilt" : "Rebuilt";
    default:
      return "Cannot be recovered";
  }
}

void print(const Findings &findings, const std::vector<std::string> &others, const tandem_files_set &set,
           const tandem_files_repair_result &result, bool dry_run) {
  for (const FileFinding &file : findings) {
    if (!is_damaged(file)) continue;
    fmt::print("{}: {}. {}", name_of(file), what_is_wrong(file, set), action_sentence(file, dry_run));
    if (file.finding.action != TANDEM_FILES_GIVE_UP && file.finding.left_bad_count != 0)
      fmt::print(", but for {}", plural(file.finding.left_bad_count, "block"));
    fmt::print("\n");
  }
  for (const std::string &other : others) fmt::print("{}\n", printable(other));
  constexpr const char *kNow[] = {"intact", "not whole, but recoverable", "not recoverable as a whole"};
  fmt::print("set {}: {}{}; {} {} ({}), {} {}\n", hexadecimal(set.set_id), dry_run ? "" : "now ",
             dry_run && result.state == TANDEM_FILES_RECOVERABLE ? "recoverable" : kNow[result.state],
             plural(result.mended_file_count, "file"), dry_run ? "would be mended in place" : "mended in place",
             plural(result.mended_block_count, "block"), plural(result.rebuilt_file_count, "file"),
             dry_run ? "would be rebuilt" : "rebuilt");
  if (result.lost_stripe_count != 0)
    fmt::print("{} of {} cannot be recovered\n", result.lost_stripe_count, plural(set.stripe_count, "stripe"));
  if (result.left_shard_count != 0) fmt::print("{} cannot be rebuilt\n", plural(result.left_shard_count, "shard"));
  fmt::print("{} read, {} written and read back, {:.2f} s\n", size(result.read_bytes), size(result.written_bytes),
             result.seconds);
}

int repair(RepairFlags flags, Ranks *ranks) {
  if (ranks != nullptr) ranks->adapt(flags.context);
  const bool leads = ranks == nullptr || ranks->leads();
  if (leads) recover(flags.set.paths, flags.write.dry_run, flags.output, flags.write.lock_wait_seconds);
  const SearchOwner found = search(flags.set.paths, flags.output);
  const ContextOwner context = make_context(flags.context);
  std::size_t set_index = 0;
  const tandem_files_set set = choose(found, flags.set.set_id, &set_index);
  const std::vector<std::string> folders = expand_index(flags.folders, set.k + set.m);
  const std::vector<const char *> folder_pointers = pointers(folders);

  Findings findings;
  auto options = sized<tandem_files_repair_options>();
  options.set_id_prefix = flags.set.set_id_prefix();
  if (!folders.empty()) options.folders = folder_pointers.data();
  options.folder_count = folders.size();
  flags.write.set(options);
  options.thread_count = flags.context.thread_count;
  if (!flags.output.quiet) options.note = print_note;
  options.report = collect;
  options.report_user = &findings;
  auto result = sized<tandem_files_repair_result>();
  run_with_progress("repair", flags.output, options, [&] {
    return ranks != nullptr ? ranks->repair(context.get(), flags.set.paths, options, &result)
                            : tandem_files_repair(context.get(), found.get(), &options, &result);
  });
  if (!leads) return exit_status_of_state(result.state);

  const std::vector<std::string> others = files_of_other_sets(found, set_index);
  if (flags.output.json) {
    nlohmann::ordered_json object = {{"command", "repair"},
                                     {"dry_run", flags.write.dry_run},
                                     {"set_id", hexadecimal(set.set_id)},
                                     {"state", state_name(result.state)},
                                     {"k", set.k},
                                     {"m", set.m},
                                     {"mended_file_count", result.mended_file_count},
                                     {"mended_block_count", result.mended_block_count},
                                     {"rebuilt_file_count", result.rebuilt_file_count},
                                     {"left_block_count", result.left_block_count},
                                     {"left_shard_count", result.left_shard_count},
                                     {"lost_stripe_count", result.lost_stripe_count},
                                     {"read_bytes", result.read_bytes},
                                     {"written_bytes", result.written_bytes},
                                     {"seconds", result.seconds},
                                     {"files", nlohmann::ordered_json::array()},
                                     {"other_sets", others}};
    for (const FileFinding &file : findings) {
      if (!is_damaged(file)) continue;
      object["files"].push_back(to_json(file, set));
      object["files"].back()["action"] = action_word(file);
      object["files"].back()["left_bad_count"] = file.finding.left_bad_count;
    }
    print_json(object);
  } else if (!flags.output.quiet) {
    print(findings, others, set, result, flags.write.dry_run);
  }
  return exit_status_of_state(result.state);
}

}  // namespace

void add_repair_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<RepairFlags>();
  CLI::App *command = app.add_subcommand("repair", "Mend a set: rewrite damaged blocks, rebuild missing shard files");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files");
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
