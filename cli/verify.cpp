// tandem verify PATH...
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/finding.hpp"
#include "cli/locate.hpp"

namespace tandem::cli {
namespace {

struct VerifyFlags {
  SetFlags set;
  OutputFlags output;
  ContextFlags context;
  LocateFlags locate;
};

int verify_found(const VerifyFlags &flags, const SearchOwner &found, Ranks *ranks) {
  const ContextOwner context = make_context(flags.context);
  std::size_t set_index = 0;
  auto set = sized<tandem_files_set>();
  if (found) set = choose(found, flags.set.set_id, &set_index);

  Findings findings;
  auto options = sized<tandem_files_verify_options>();
  options.set_id_prefix = flags.set.set_id_prefix();
  options.report = collect;
  options.report_user = &findings;
  auto result = sized<tandem_files_verify_result>();
  run_with_progress("verify", flags.output, options, [&] {
    return ranks != nullptr ? ranks->verify(context.get(), flags.set.paths, options, &result)
                            : tandem_files_verify(context.get(), found.get(), &options, &result);
  });
  if (ranks != nullptr && !ranks->leads()) return exit_status_of_state(result.state);

  const std::vector<std::string> others = files_of_other_sets(found, set_index);
  if (flags.output.json) {
    nlohmann::ordered_json object = {{"command", "verify"},
                                     {"set_id", hexadecimal(set.set_id)},
                                     {"state", state_name(result.state)},
                                     {"k", set.k},
                                     {"m", set.m},
                                     {"stripe_count", set.stripe_count},
                                     {"missing_shards", nlohmann::ordered_json::array()},
                                     {"damaged_file_count", result.damaged_file_count},
                                     {"bad_block_count", result.bad_block_count},
                                     {"worst_bad_count", result.worst_bad_count},
                                     {"lost_stripe_count", result.lost_stripe_count},
                                     {"read_bytes", result.read_bytes},
                                     {"seconds", result.seconds},
                                     {"damaged", nlohmann::ordered_json::array()},
                                     {"misnamed", nlohmann::ordered_json::array()},
                                     {"other_sets", others}};
    for (const FileFinding &file : findings) {
      if ((file.finding.condition & TANDEM_FILES_MISSING) != 0)
        object["missing_shards"].push_back(file.finding.index);
      else if (is_damaged(file))
        object["damaged"].push_back(to_json(file, set));
      if (!misnamed(file).empty()) object["misnamed"].push_back(file.path);
    }
    print_json(object);
  } else if (!flags.output.quiet) {
    for (const FileFinding &file : findings) {
      if (is_damaged(file)) fmt::print("{}: {}\n", name_of(file), what_is_wrong(file, set));
      if (const std::string name = misnamed(file); !name.empty()) fmt::print("{}\n", printable(name));
    }
    for (const std::string &other : others) fmt::print("{}\n", printable(other));
    fmt::print("set {}: {}; {}, {}, at most {} bad or missing in a stripe of {} + {}\n", hexadecimal(set.set_id),
               state_name(result.state), plural(result.missing_shard_count, "missing shard"),
               plural(result.bad_block_count, "damaged block"), result.worst_bad_count, set.k, set.m);
    if (result.state == TANDEM_FILES_RECOVERABLE) fmt::print("`tandem repair` can mend all of it\n");
    if (result.lost_stripe_count != 0)
      fmt::print("{} of {} cannot be recovered; `tandem repair` mends what is left to mend\n", result.lost_stripe_count,
                 plural(set.stripe_count, "stripe"));
    fmt::print("{} read in {:.2f} s, {}\n", size(result.read_bytes), result.seconds,
               rate(result.read_bytes, result.seconds));
  }
  return exit_status_of_state(result.state);
}

int verify(VerifyFlags flags, Ranks *ranks) {
  if (flags.locate.is_on) {
    if (ranks != nullptr) throw Failure{kExitWrongUsage, "--locate is for one process: use tandem verify --locate"};
    return locate(flags.locate, flags.set.paths, flags.context, flags.output);
  }
  if (ranks != nullptr) ranks->adapt(flags.context);
  if (ranks != nullptr && !ranks->leads()) return verify_found(flags, nullptr, ranks);
  recover(flags.set.paths, false, flags.output);
  // Each rank searches; none alone repeats it. Rank 0 needs what was found, for its report.
  if (ranks != nullptr) return verify_found(flags, search(flags.set.paths, flags.output), ranks);
  return with_search(flags.set.paths, flags.output, true,
                     [&](const SearchOwner &found) { return verify_found(flags, found, nullptr); });
}

}  // namespace

void add_verify_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<VerifyFlags>();
  CLI::App *command = app.add_subcommand("verify", "Check every block of a set and say what is damaged");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files");
  add_context_flags(*command, flags->context);
  for (const char *of_coding :
       {"--backend", "--kernel", "--technique", "--executor", "--partition", "--schedule", "--resource", "--policy"})
    command->remove_option(command->get_option(of_coding));  // blocks have checksums: nothing is coded
  add_locate_flags(*command, flags->locate);
  command->get_option("--set")->excludes(command->get_option("--locate"));
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return verify(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
