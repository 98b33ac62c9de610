// SPDX-License-Identifier: Apache-2.0
// tandem par2
#include "cli/par2.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "cli/commands.hpp"
#include "cli/option_table.hpp"
#include "cli/sets.hpp"
#include "cli/verify_times.hpp"

namespace tandem::cli {
namespace {

constexpr const char *kPar2Footer =
    "A set of PAR 2.0 protects files that stay as they are: SET.par2 describes them, and SET.vol*.par2 have recovery\n"
    "slices. Other programs can read the sets, and repair with them. verify and repair also take SET.par, of PAR 1.0.\n"
    "docs/par2.md describes sets.";
constexpr double kDefaultPercent = 5;
constexpr const char *kVolumes[] = {"doubling", "limited", "uniform"};  // the order of par2.h

struct Par2CreateFlags {
  std::string set, base, redundancy, volumes = kVolumes[TANDEM_PAR2_DOUBLING];
  std::vector<std::string> paths;
  tandem_par2_create_options options = sized<tandem_par2_create_options>();
  bool has_recovery = false, force = false, no_sync = false;
  OutputFlags output;
  ContextFlags context;
};

struct Par2VerifyFlags {
  std::string set, base;
  std::vector<std::string> extra;
  bool packets = false;
  tandem_par2_verify_options options = sized<tandem_par2_verify_options>();
  OutputFlags output;
};

struct Par2RepairFlags {
  Par2VerifyFlags verify;
  tandem_par2_repair_options options = sized<tandem_par2_repair_options>();
  bool packets = false, keep_replaced = false, rename_only = false, no_sync = false;
  ContextFlags context;
};

const char *base_of(const std::string &base) { return base.empty() ? nullptr : base.c_str(); }

int create_par2(Par2CreateFlags flags) {
  const ContextOwner context = make_context(flags.context);
  const std::vector<const char *> paths = pointers(flags.paths);
  tandem_par2_create_options &options = flags.options;
  options.path = flags.set.c_str();
  options.base_path = base_of(flags.base);
  options.source_paths = paths.data();
  options.source_count = paths.size();
  options.thread_count = flags.context.thread_count;
  options.force = flags.force;
  options.no_sync = flags.no_sync;
  while (flags.volumes != kVolumes[options.volumes]) ++options.volumes;
  if (!flags.has_recovery) options.recovery_percent = redundancy_percent(flags.redundancy);
  auto result = sized<tandem_par2_create_result>();
  run_with_progress("par2 create", flags.output, options,
                    [&] { return tandem_par2_create(context.get(), &options, &result); });
  if (flags.output.json) {
    Json object = {{"command", "par2 create"}};
    object.update(set_object(result));
    print_json(object);
  } else if (!flags.output.quiet) {
    fmt::print("{}, {}: {} of {}; {}, {}: {}\n", plural(result.file_count, "file"), size(result.source_bytes),
               plural(result.slice_count, "slice"), exact_size(result.slice_bytes),
               plural(result.packet_file_count, "packet file"), size(result.packet_file_bytes),
               plural(result.recovery_slice_count, "recovery slice"));
  }
  return kExitDone;
}

// ---- verify and repair

Par2Report verify_with(Par2VerifyFlags flags, const char *command) {
  const std::vector<const char *> extra = pointers(flags.extra);
  flags.options.path = flags.set.c_str();
  flags.options.base_path = base_of(flags.base);
  flags.options.extra_paths = extra.data();
  flags.options.extra_count = extra.size();
  if (flags.packets) flags.options.scope = TANDEM_PAR2_PACKETS;
  try {
    return verify_par2(flags.options, command, flags.output);
  } catch (Failure &failure) {
    std::error_code error;
    if (failure.exit_status == kExitInputOutput && std::filesystem::is_directory(flags.set, error) &&
        !std::filesystem::exists(flags.set + ".par2", error)) {
      const bool repair = std::string_view(command) == "par2 repair";
      std::string line = par2_command(flags.set, repair);
      if (line.empty()) line = par2_scrub_command(flags.set, repair);
      failure.message = fmt::format("{} is a folder, and SET is a file; `{}` {} its sets", flags.set, line,
                                    repair ? "repairs" : "checks");
    }
    throw;
  }
}

Json packet_files_array(const Par2Report &report) {
  Json array = Json::array();
  for (const tandem_par2_packet_file &file : report.packet_files) {
    array.push_back({{"path", file.path},
                     {"bytes", file.bytes},
                     {"damaged_bytes", file.damaged_bytes},
                     {"packet_count", file.packet_count},
                     {"recovery_slice_count", file.recovery_slice_count},
                     {"lost_recovery_slice_count", file.lost_recovery_slice_count},
                     {"lost", file.is_lost != 0}});
  }
  return array;
}

const char *state_of(const tandem_par2_file &file) {
  constexpr const char *kStates[] = {"complete", "renamed", "damaged", "missing", "unreadable"};
  return kStates[file.state];
}

void print_packet_files(const Par2Report &report) {
  for (const tandem_par2_packet_file &file : report.packet_files) {
    std::string what = file.damaged_bytes != 0 ? fmt::format("{} damaged", plural(file.damaged_bytes, "byte")) : "";
    if (file.is_lost != 0 && file.bytes == 0) what = "missing";
    if (file.lost_recovery_slice_count != 0)
      what +=
          fmt::format("{}{} lost", what.empty() ? "" : ", ", plural(file.lost_recovery_slice_count, "recovery slice"));
    if (!what.empty()) fmt::print("{}: {}\n", printable(file.path), what);
  }
}

void print_report(const Par2Report &report) {
  for (const tandem_par2_file &file : report.files) {
    if (file.repaired != 0) {
      fmt::print("{}: repaired\n", printable(file.name));
    } else if (file.state == TANDEM_PAR2_RENAMED) {
      fmt::print("{}: renamed, {} has its content\n", printable(file.name), printable(file.found_as));
    } else if (file.state != TANDEM_PAR2_COMPLETE && file.state != TANDEM_PAR2_UNREADABLE) {
      fmt::print("{}: {}, {} of {} found\n", printable(file.name), state_of(file), file.found_slice_count,
                 plural(file.slice_count, "slice"));
    }
  }
  print_packet_files(report);
  if (report.summary.remade_packet_file_count != 0)
    fmt::print("{} made anew\n", plural(report.summary.remade_packet_file_count, "packet file"));
  for (const char *path : report.temporaries)
    fmt::print("{}: left by a process that ended early; repair removes it when all files are complete\n",
               printable(path));
  fmt::print("{} of {} complete; {}\n", report.summary.complete_count, plural(report.summary.file_count, "file"),
             what_is_lost(report.summary));
}

// Files of other sets do not count.
std::size_t count_bad(const std::vector<tandem_par2_packet_file> &files) {
  return static_cast<std::size_t>(std::ranges::count_if(files, [](const tandem_par2_packet_file &file) {
    const bool is_of_set = file.packet_count != 0 || file.damaged_bytes == file.bytes;
    return file.is_lost != 0 || (is_of_set && (file.damaged_bytes != 0 || file.bytes == 0));
  }));
}

// failure: of a repair. That something is not recoverable is not known while something cannot be read.
// bad_packet_files: that were to be made anew.
int finish_par2(const Par2Report &report, const char *command, const OutputFlags &output,
                const Failure *failure = nullptr, std::size_t bad_packet_files = 0) {
  int status = exit_status_of(report);
  if (status == kExitDone && bad_packet_files != 0) status = kExitDamageFound;
  if (failure != nullptr && !(failure->exit_status == kExitNotRecoverable && status == kExitInputOutput))
    status = failure->exit_status;
  if (failure != nullptr) complain(failure->message);
  complain_of_unreadable(report);
  if (output.json) {
    Json object = report_object(report, command);
    if (failure != nullptr) object.update(failure_object(*failure));
    object["exit_status"] = status;
    print_json(object);
  } else if (!output.quiet) {
    print_report(report);
  }
  return status;
}

// Says which extra files had no effect. Packets of another set are an error of a verify: that set was not checked.
void complain_of_extra(const Par2Report &report, const Par2VerifyFlags &flags, bool is_verify) {
  namespace fs = std::filesystem;
  const auto whole = [](const fs::path &path) {
    std::error_code error;  // of a file that cannot be looked at: verify has named it
    return fs::weakly_canonical(path, error);
  };
  std::set<fs::path> known;
  const fs::path base = !flags.base.empty() ? fs::path(flags.base) : fs::path(flags.set).parent_path();
  for (const tandem_par2_file &file : report.files) known.insert(whole(base / file.name));
  for (const tandem_par2_packet_file &file : report.packet_files) {
    const bool is_protected = !known.insert(whole(file.path)).second;
    const bool is_other = file.packet_count == 0 && file.damaged_bytes != file.bytes;
    if (!is_other || is_protected || std::ranges::find(flags.extra, std::string_view(file.path)) == flags.extra.end())
      continue;
    if (is_verify)
      fail(kExitWrongUsage, file.path, " is of another set, which is not checked: verify one set at a time");
    complain("note: ", file.path, ": its packets are of another set");
  }
  if (report.summary.repair_needed != 0) return;
  for (const std::string &path : flags.extra)
    if (!known.contains(whole(path)))
      complain("note: ", path, ": no file of the set, and not searched: all files of the set are complete");
}

// Of packet files alone.
int finish_packets(const Par2Report &report, const OutputFlags &output) {
  const tandem_par2_summary &summary = report.summary;
  const std::size_t bad = count_bad(report.packet_files);
  const int status = bad != 0 ? kExitDamageFound : kExitDone;
  if (output.json) {
    print_json({{"command", "par2 verify"},
                {"exit_status", status},
                {"set_id", hexadecimal(summary.set_id)},
                {"slice_bytes", summary.slice_bytes},
                {"slice_count", summary.slice_count},
                {"recovery_slice_count", summary.recovery_slice_count},
                {"packet_files", packet_files_array(report)}});
  } else if (!output.quiet) {
    print_packet_files(report);
    fmt::print("{} of {} intact, {}\n", report.packet_files.size() - bad,
               plural(report.packet_files.size(), "packet file"),
               plural(summary.recovery_slice_count, "recovery slice"));
  }
  return status;
}

int run_verify(const Par2VerifyFlags &flags) {
  const Par2Report report = verify_with(flags, "par2 verify");
  complain_of_extra(report, flags, true);
  if (flags.packets) return finish_packets(report, flags.output);
  return finish_par2(report, "par2 verify", flags.output);
}

int run_repair(Par2RepairFlags flags) {
  constexpr const char *kCommand = "par2 repair";
  Par2Report report = verify_with(flags.verify, kCommand);
  complain_of_extra(report, flags.verify, false);
  if (flags.packets || can_repair_some(report) || (report.summary.repair_needed != 0 && flags.rename_only)) {
    flags.options.thread_count = flags.context.thread_count;
    flags.options.packets = flags.packets;
    flags.options.keep_replaced = flags.keep_replaced;
    flags.options.rename_only = flags.rename_only;
    flags.options.no_sync = flags.no_sync;
    try {
      repair_par2(report, flags.options, make_context(flags.context), kCommand, flags.verify.output);
    } catch (const Failure &failure) {
      report.read();  // other files may be repaired
      const bool is_too_little = failure.status == TANDEM_ERROR_NOT_RECOVERABLE && report.summary.repair_possible == 0;
      if (!is_too_little && report.summary.repaired_count == 0) throw;
      return finish_par2(report, kCommand, flags.verify.output, &failure);
    }
  }
  const std::size_t bad = flags.packets ? count_bad(report.packet_files) : 0;
  if (bad != 0)
    complain(plural(bad, "damaged packet file"),
             " stays: its name does not tell what it had, or it holds other packets, "
             "has no intact one, or is a link (tandem par2 verify --packets names it)");
  return finish_par2(report, kCommand, flags.verify.output, nullptr, bad);
}

void add_base_flag(CLI::App &command, std::string &base) {
  command.add_option("-B,--base", base, "Folder of the protected files; default: that of SET")->type_name("FOLDER");
}

void add_par2_create(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<Par2CreateFlags>();
  CLI::App &command = *par2.add_subcommand("create", "Make recovery files for files and folders");
  command.add_option("SET", flags->set, "SET.par2 to make; others are SET.volN+N.par2")->required();
  command.add_option("PATH", flags->paths, "Files to protect, and folders with all files below them")->required();
  CLI::Option *slice_bytes = command
                                 .add_option("-s,--slice-bytes", flags->options.slice_bytes,
                                             "Bytes of a slice: a multiple of 4; default: see --slices")
                                 ->transform(size_value());
  command
      .add_option(
          "-b,--slices", flags->options.slice_count,
          fmt::format(
              "Cut the files into at most so many slices, {} at most; default: slices of a 2,000th of all bytes "
              "and at least 4 KiB",
              TANDEM_PAR2_MAX_SLICES))
      ->excludes(slice_bytes);
  CLI::Option *recovery = command.add_option("-c,--recovery", flags->options.recovery_slice_count,
                                             "Recovery slices: they replace as many slices that are lost");
  add_redundancy_flag(command, flags->redundancy, recovery);
  command
      .add_option("-f,--first", flags->options.first_exponent,
                  "Number of the first recovery slice: to add some to a set, begin after those that it has")
      ->group(kExpert);
  command
      .add_option("--volumes", flags->volumes,
                  "Recovery slices in each file: 1, 2, 4, 8, ...; the same, up to the size of the largest file; equal "
                  "numbers")
      ->check(one_of({std::begin(kVolumes), std::end(kVolumes)}))
      ->capture_default_str()
      ->type_name("SCHEME");
  command.add_option("--volume-count", flags->options.volume_count,
                     "Files with recovery slices; not with --volumes limited");
  add_base_flag(command, flags->base);
  add_memory_flag(command, flags->options.memory_bytes);
  command.add_flag("--force", flags->force, "Replace existing files of these names");
  add_no_sync_flag(command, flags->no_sync);
  add_context_flags(command, flags->context, CodesOn::cpu);
  add_output_flags(command, flags->output);
  command.callback([flags, recovery, &invocation] {
    flags->has_recovery = recovery->count() != 0;
    invocation.run = [flags] { return create_par2(*flags); };
  });
}

void add_par2_places(CLI::App &command, Par2VerifyFlags &flags) {
  command.add_option("SET", flags.set, "A file of the set, with or without .par2")->required();
  command.add_option("EXTRA", flags.extra,
                     "More packet files of the set, and files that are searched for renamed, joined, split or shifted "
                     "data; repair copies what lies outside of the base folder");
  add_base_flag(command, flags.base);
}

void add_par2_verify(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<Par2VerifyFlags>();
  CLI::App &command = *par2.add_subcommand("verify", "Check the files of a set");
  add_par2_places(command, *flags);
  command.add_option("--threads", flags->options.thread_count, "Threads; default: one for each core");
  add_part_flags(command, flags->options.rate_bytes_per_second, nullptr);
  command.get_option("--rate")->excludes(command.get_option("--threads"));  // one thread reads then
  command.add_flag("--packets", flags->packets, "Check only the packet files: SET.par2 and SET.vol*.par2");
  command.footer(
      "Exit status: 0 all files are complete, 1 a repair is possible, 3 a file cannot be read, 4 a repair is not "
      "possible; with --packets, 1 a packet file is damaged or missing.");
  add_output_flags(command, flags->output);
  command.callback([flags, &invocation] { invocation.run = [flags] { return run_verify(*flags); }; });
}

void add_par2_repair(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<Par2RepairFlags>();
  CLI::App &command = *par2.add_subcommand("repair", "Make the files of a set complete");
  add_par2_places(command, flags->verify);
  add_memory_flag(command, flags->options.memory_bytes);
  CLI::Option *packets = command.add_flag(
      "--packets", flags->packets,
      "After the repair, also make damaged packet files anew, and those that are missing between others");
  command.add_flag("--keep-replaced", flags->keep_replaced, "Keep a wrong file that another one replaces, as NAME.1");
  command
      .add_flag("--rename-only", flags->rename_only,
                "Only put whole files that were found under other names in their places")
      ->excludes(packets);
  add_no_sync_flag(command, flags->no_sync);
  command.footer(
      "Exit status: 0 all files are complete, 3 a file cannot be read: it stays as it is, 4 not all files can be\n"
      "repaired; with --rename-only, 1 a repair is possible; with --packets, 1 a damaged packet file stays.");
  add_context_flags(command, flags->context, CodesOn::cpu);
  add_output_flags(command, flags->verify.output);
  command.callback([flags, &invocation] {
    flags->verify.options.thread_count = flags->context.thread_count;
    invocation.run = [flags] { return run_repair(*flags); };
  });
}

}  // namespace

Par2Report verify_par2(tandem_par2_verify_options options, std::string_view action, const OutputFlags &output) {
  tandem_par2_report *report = nullptr;
  run_with_progress(action, output, options, [&] { return tandem_par2_verify(&options, &report); });
  return Par2Report(report);
}

void repair_par2(Par2Report &report, tandem_par2_repair_options options, const ContextOwner &context,
                 std::string_view action, const OutputFlags &output) {
  run_with_progress(action, output, options, [&] { return tandem_par2_repair(context.get(), report.get(), &options); });
  report.read();
}

bool can_repair_some(const Par2Report &report) {
  const tandem_par2_summary &summary = report.summary;
  if (summary.repair_needed == 0) return !report.temporaries.empty();
  const bool is_enough = summary.slice_count - summary.found_slice_count <= summary.recovery_slice_count;
  return std::ranges::any_of(report.files, [&](const tandem_par2_file &file) {
    const bool is_lost = file.state == TANDEM_PAR2_DAMAGED || file.state == TANDEM_PAR2_MISSING;
    const bool is_found = file.found_slice_count == file.slice_count;
    return file.state == TANDEM_PAR2_RENAMED ||
           (is_lost && (file.bytes == 0 || (file.recoverable != 0 && (is_enough || is_found))));
  });
}

int exit_status_of(const tandem_par2_summary &summary) {
  if (summary.unreadable_count != 0) return kExitInputOutput;  // whether all is complete, or can be, is unknown
  return summary.repair_needed == 0 ? kExitDone : summary.repair_possible != 0 ? kExitDamageFound : kExitNotRecoverable;
}

int exit_status_of(const Par2Report &report) {
  const int status = exit_status_of(report.summary);
  const bool all_searched = std::ranges::none_of(report.searched_files, &tandem_par2_searched_file::error_number);
  return status == kExitNotRecoverable && !all_searched ? kExitInputOutput : status;
}

void complain_of_unreadable(const Par2Report &report) {
  for (const tandem_par2_file &file : report.files)
    if (file.error_number != 0) complain(file.name, ": cannot be read: ", std::strerror(file.error_number));
  if (report.summary.repair_needed == 0) return;
  for (const tandem_par2_searched_file &file : report.searched_files)
    if (file.error_number != 0) complain(file.path, ": cannot be read: ", std::strerror(file.error_number));
}

Json set_object(const tandem_par2_create_result &result) {
  return {{"set_id", hexadecimal(result.set_id)},
          {"slice_bytes", result.slice_bytes},
          {"slice_count", result.slice_count},
          {"recovery_slice_count", result.recovery_slice_count},
          {"file_count", result.file_count},
          {"source_bytes", result.source_bytes},
          {"packet_file_count", result.packet_file_count},
          {"packet_file_bytes", result.packet_file_bytes}};
}

Json report_object(const Par2Report &report, std::string_view command) {
  const tandem_par2_summary &summary = report.summary;
  Json object = {{"command", command},
                 {"exit_status", exit_status_of(report)},
                 {"set_id", hexadecimal(summary.set_id)},
                 {"slice_bytes", summary.slice_bytes},
                 {"slice_count", summary.slice_count},
                 {"found_slice_count", summary.found_slice_count},
                 {"recovery_slice_count", summary.recovery_slice_count},
                 {"repair_needed", summary.repair_needed != 0},
                 {"repair_possible", summary.repair_possible != 0},
                 {"repaired_count", summary.repaired_count},
                 {"files", Json::array()},
                 {"packet_files", packet_files_array(report)},
                 {"remade_packet_file_count", summary.remade_packet_file_count},
                 {"searched_files", Json::array()},
                 {"temporary_files", report.temporaries}};
  for (const tandem_par2_file &file : report.files) {
    object["files"].push_back({{"name", file.name},
                               {"state", state_of(file)},
                               {"found_as", file.found_as != nullptr ? Json(file.found_as) : Json(nullptr)},
                               {"bytes", file.bytes},
                               {"recoverable", file.recoverable != 0},
                               {"slice_count", file.slice_count},
                               {"found_slice_count", file.found_slice_count},
                               {"repaired", file.repaired != 0},
                               {"error_number", file.error_number}});
  }
  for (const tandem_par2_searched_file &file : report.searched_files) {
    object["searched_files"].push_back({{"path", file.path},
                                        {"name", file.name != nullptr ? Json(file.name) : Json(nullptr)},
                                        {"found_slice_count", file.found_slice_count},
                                        {"repeated_slice_count", file.repeated_slice_count},
                                        {"error_number", file.error_number}});
  }
  return object;
}

std::string what_is_lost(const tandem_par2_summary &summary) {
  const bool all_read = summary.unreadable_count == 0;
  std::string text = fmt::format("{} of {} {}, {}", summary.slice_count - summary.found_slice_count,
                                 plural(summary.slice_count, "slice"), all_read ? "lost" : "lost or unreadable",
                                 plural(summary.recovery_slice_count, "recovery slice"));
  if (!all_read) text += fmt::format(", {} cannot be read", plural(summary.unreadable_count, "file"));
  if (summary.renamed_count + summary.damaged_count + summary.missing_count != 0)
    text += fmt::format(": a repair is {}", summary.repair_possible != 0 ? "possible" : "not possible");
  return text;
}

double redundancy_percent(const std::string &redundancy) {
  try {
    return redundancy.empty() ? kDefaultPercent : 100 * part_of(redundancy);
  } catch (const std::invalid_argument &error) {
    fail(kExitWrongUsage, "--redundancy: ", error.what());
  }
}

void add_redundancy_flag(CLI::App &command, std::string &redundancy, CLI::Option *excluded) {
  CLI::Option *option =
      command
          .add_option("-r,--redundancy", redundancy,
                      fmt::format("Recovery slices as a part of the slices; default: {:g}%", kDefaultPercent))
          ->type_name("PERCENT");
  if (excluded != nullptr) option->excludes(excluded);
}

void add_memory_flag(CLI::App &command, std::uint64_t &memory_bytes) {
  command.add_option("--memory", memory_bytes, "Memory for slices, such as 1G; default: 64M")->transform(size_value());
}
void add_no_sync_flag(CLI::App &command, bool &no_sync) {
  command.add_flag("--no-sync", no_sync, "Let the operating system decide when bytes reach the disk")->group(kExpert);
}

void add_par2_command(CLI::App &app, Invocation &invocation) {
  CLI::App &par2 = *app.add_subcommand("par2", "Recovery files beside files that stay as they are: PAR 2.0");
  par2.require_subcommand(1);
  par2.footer(kPar2Footer);
  add_par2_create(par2, invocation);
  add_par2_verify(par2, invocation);
  add_par2_repair(par2, invocation);
  add_par2_sync(par2, invocation);
  add_par2_scrub(par2, invocation);
}

}  // namespace tandem::cli
