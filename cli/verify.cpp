// SPDX-License-Identifier: Apache-2.0
// tandem verify PATH...
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/finding.hpp"
#include "cli/locate.hpp"
#include "cli/sets.hpp"
#include "cli/verify_times.hpp"

namespace tandem::cli {
namespace {

struct VerifyFlags {
  SetFlags set;
  OutputFlags output;
  ContextFlags context;
  LocateFlags locate;
  bool here = false;
  std::uint64_t rate_bytes_per_second = 0;
  double oldest_part = 0;  // 0: all sets, and no times are kept
};

struct Verified : Reported<tandem_files_verify_result> {
  bool here = false;  // what is not here does not count
  std::vector<std::string> warnings;

  std::int32_t state() const {
    if (!here) return result.state;
    return result.damaged_file_count != 0 ? TANDEM_FILES_RECOVERABLE : TANDEM_FILES_INTACT;
  }
  bool is_crowded() const { return result.crowded_folder_count != 0; }
  int exit_status() const { return std::max<int>(exit_status_of_state(state()), is_crowded() ? kExitDamageFound : 0); }
};

Json to_json(const ChosenSet &chosen, const Verified &verified) {
  const tandem_files_set &set = chosen.set;
  Json object = {{"command", "verify"},
                 {"set_id", hexadecimal(set.set_id)},
                 {"name", chosen.name},
                 {"state", ""},
                 {"k", set.k},
                 {"m", set.m},
                 {"stripe_count", set.stripe_count},
                 {"missing_shards", Json::array()}};
  put(object, verified.result);
  if (verified.here) object["state"] = verified.state() == TANDEM_FILES_INTACT ? "intact" : "damaged";
  object["here"] = verified.here;
  object["warnings"] = verified.warnings;
  object["damaged"] = Json::array();
  object["misnamed"] = Json::array();
  object["other_sets"] = chosen.others;
  for (const FileFinding &file : verified.findings) {
    if ((file.finding.condition & TANDEM_FILES_MISSING) != 0)
      object["missing_shards"].push_back(file.finding.index);
    else if (is_damaged(file))
      object["damaged"].push_back(to_json(file, set));
    if (!misnamed(file).empty()) object["misnamed"].push_back(file.path);
  }
  return object;
}

void print_files(const ChosenSet &chosen, const Verified &verified, const char *indent) {
  for (const FileFinding &file : verified.findings) {
    if (is_damaged(file)) fmt::print("{}{}: {}\n", indent, name_of(file), what_is_wrong(file, chosen.set));
    if (const std::string name = misnamed(file); !name.empty()) fmt::print("{}{}\n", indent, printable(name));
  }
  for (const std::string &other : chosen.others) fmt::print("{}{}\n", indent, printable(other));
}

std::string what_is_found(const ChosenSet &chosen, const Verified &verified) {
  const tandem_files_verify_result &result = verified.result;
  if (verified.here)
    return fmt::format("{} here; {} of {} shards, {} {}needed to decode",
                       colored(verified.state(), verified.state() == TANDEM_FILES_INTACT ? "intact" : "damaged"),
                       chosen.set.shard_count, chosen.set.k + chosen.set.m, chosen.set.k,
                       chosen.set.any_k_suffice != 0 ? "" : "or more ");
  const std::string state = colored(result.state, state_name(result.state));
  if (result.state == TANDEM_FILES_INTACT)
    return verified.is_crowded() ? fmt::format("{}; {}", state, plural(result.crowded_folder_count, "crowded folder"))
                                 : state;
  return fmt::format("{}; {}, {}, at most {} bad or missing in a stripe of {} + {}", state,
                     plural(result.missing_shard_count, "missing shard"),
                     plural(result.bad_block_count, "damaged block"), result.worst_bad_count, chosen.set.k,
                     chosen.set.m);
}

void print(const ChosenSet &chosen, const Verified &verified) {
  const tandem_files_verify_result &result = verified.result;
  print_files(chosen, verified, "");
  fmt::print("set {}: {}\n", hexadecimal(chosen.set.set_id), what_is_found(chosen, verified));
  if (result.state == TANDEM_FILES_LOST && !verified.here && result.damaged_file_count == 0)
    fmt::print("the files that are here are intact: `{} verify --here` checks a part of a set\n", command_name());
  if (verified.is_crowded())
    fmt::print("`{} repair` spreads the shards if it finds an empty folder, or gets one with -o\n", program_name());
  if (has_other_m(verified.findings)) {
    fmt::print("`{} resize` with the m that the set shall have finishes the resize\n", command_name());
  } else if (result.state == TANDEM_FILES_RECOVERABLE && (!verified.here || result.damaged_file_count != 0)) {
    fmt::print("`{} repair` can mend all of it\n", program_name());
  }
  if (result.lost_stripe_count != 0 && !verified.here)
    fmt::print("{} of {} cannot be recovered\n", result.lost_stripe_count, plural(chosen.set.stripe_count, "stripe"));
  fmt::print("{} read in {:.2f} s, {}\n", size(result.read_bytes), result.seconds,
             rate(result.read_bytes, result.seconds));
}

// ranks: those of a job, or NULL.
Verified verify_set(const VerifyFlags &flags, const ContextOwner &context, const SearchOwner &found,
                    const std::string &set_id, const Places &places, const std::string &action, Ranks *ranks) {
  Verified verified;
  auto options = sized<tandem_files_verify_options>();
  if (!set_id.empty()) options.set_id_prefix = set_id.c_str();
  options.rate_bytes_per_second = flags.rate_bytes_per_second;
  options.report = collect;
  options.report_user = &verified.findings;
  verified.here = flags.here;
  options.note = [](void *user, const char *note) {
    static_cast<std::vector<std::string> *>(user)->emplace_back(note);
  };
  options.note_user = &verified.warnings;
  run_with_progress(action, flags.output, options, [&] {
    return ranks != nullptr ? ranks->verify(context.get(), places.paths, options, &verified.result)
                            : tandem_files_verify(context.get(), found.get(), &options, &verified.result);
  });
  if (verified.here) {
    verified.warnings.clear();
    verified.result.crowded_folder_count = 0;
  }
  for (const std::string &warning : verified.warnings) complain("warning: ", warning);
  return verified;
}

int verify_one(const VerifyFlags &flags, const SearchOwner &found, const Places &places, Ranks *ranks) {
  const ContextOwner context = make_context(flags.context);
  ChosenSet chosen;
  if (found) chosen = only_set(found, flags.set);
  const std::string set_id = ranks != nullptr ? flags.set.set_id : hexadecimal(chosen.set.set_id);
  const Verified verified = verify_set(flags, context, found, set_id, places, "verify", ranks);
  const int of_set = verified.exit_status();
  const int exit_status = places.all_read() ? of_set : std::max<int>(of_set, kExitInputOutput);
  if (ranks != nullptr && !ranks->leads()) return exit_status;
  if (flags.output.json) {
    Totals<tandem_files_verify_result> total;
    total.add(verified.result);
    Json object = to_json(chosen, verified);
    object["exit_status"] = of_set;
    print_sets("verify", Json::array({std::move(object)}), total.json(), exit_status, places.all_read(),
               Json::object());
  } else if (!flags.output.quiet) {
    print(chosen, verified);
    if (!places.all_read() && verified.result.missing_shard_count != 0)
      fmt::print("shards that were not found may lie in what cannot be read\n");
  }
  return exit_status;
}

int verify_each(const VerifyFlags &flags, Places &places) {
  EachSet each("verify", flags.output);
  Totals<tandem_files_verify_result> total;
  std::optional<VerifyTimes> times;
  std::set<std::string> oldest;  // chosen once, though files may change and be searched again
  const auto verify_found = [&](const SearchOwner &found) {
    note_unread(found, places);
    std::vector<ChosenSet> sets = chosen_sets(found, flags.set);
    if (flags.oldest_part != 0) {
      if (!times) {
        std::vector<VerifyTimes::Set> all_sets;
        for (const ChosenSet &chosen : sets)
          all_sets.push_back({hexadecimal(chosen.set.set_id), chosen.set.shard_count * chosen.set.shard_file_bytes});
        oldest = times.emplace().oldest(all_sets, flags.oldest_part);
      }
      std::erase_if(sets, [&](const ChosenSet &set) { return !oldest.contains(hexadecimal(set.set.set_id)); });
    }
    if (!times && sets.size() == 1 && !flags.set.recursive && each.set_count() == 0)
      return verify_one(flags, found, places, nullptr);
    const ContextOwner context = make_context(flags.context);
    each.run(found, sets, true, [&](const ChosenSet &chosen, const std::string &action, Json &object) {
      const std::string set_id = hexadecimal(chosen.set.set_id);
      if (times) times->set_now(set_id);
      const Verified verified = verify_set(flags, context, found, set_id, places, action, nullptr);
      total.add(verified.result);
      if (flags.output.json) {
        object = to_json(chosen, verified);
      } else if (!flags.output.quiet) {
        fmt::print("{}: {}\n", label_of(chosen), what_is_found(chosen, verified));
        print_files(chosen, verified, "  ");
      }
      if (verified.result.state == TANDEM_FILES_INTACT && verified.is_crowded()) each.add_crowded();
      return verified.exit_status();
    });
    if (!flags.output.json && !flags.output.quiet)
      fmt::print("{}, {} read in {:.2f} s\n", each.counts(), size(total.sum.read_bytes), total.sum.seconds);
    return each.finish(places, total.json());
  };
  return with_search(places.all(), flags.output, true, verify_found, places.recursive);
}

int verify(VerifyFlags flags, Ranks *ranks) {
  if (flags.locate.is_on) {
    return locate(flags.locate, flags.set.paths, flags.context, flags.output);
  }
  if (ranks != nullptr) ranks->adapt(flags.context);
  Places places = places_of(flags.set);
  if (ranks != nullptr && !ranks->leads()) return verify_one(flags, nullptr, places, ranks);
  recover(places.paths, false);
  // Each rank searches; one rank cannot repeat it alone. Rank 0 needs the result for its report.
  if (ranks != nullptr) {
    const SearchOwner found = search(places.all(), flags.output, places.recursive);
    note_unread(found, places);
    return verify_one(flags, found, places, ranks);
  }
  return run_in(places, [&] { return verify_each(flags, places); });
}

}  // namespace

void add_verify_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<VerifyFlags>();
  const bool is_one_set = invocation.ranks != nullptr;
  CLI::App *command = app.add_subcommand("verify", fmt::format("Check every block of {} and say what is damaged",
                                                               is_one_set ? "a set" : "the sets that are found"));
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files", invocation.ranks);
  add_context_flags(*command, flags->context);
  for (const char *of_coding :
       {"--backend", "--kernel", "--technique", "--device-technique", "--executor", "--resource", "--policy"})
    command->remove_option(command->get_option(of_coding));  // blocks have checksums: nothing is coded
  if (invocation.ranks == nullptr) {                         // one process
    command->add_flag("--here", flags->here,
                      "Judge only the files that are here, as of a copy elsewhere: other shards may be missing");
    add_part_flags(*command, flags->rate_bytes_per_second, &flags->oldest_part);
    add_locate_flags(*command, flags->locate);
    for (const char *of_sets : {"--set", "--name", "--recursive", "--rate", "--oldest", "--here"})
      command->get_option(of_sets)->excludes(command->get_option("--locate"));
  }
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return verify(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
