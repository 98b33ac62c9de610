// SPDX-License-Identifier: Apache-2.0
// tandem autotune
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

constexpr const char *kLocalSizes[] = {"local_x", "local_y", "local_z"};

struct AutotuneFlags {
  std::string device, memory = "host", operations, ks, ms, output;
  std::vector<std::string> local_sizes, settings, merged;
  std::uint64_t shard_bytes = 0;
  std::uint32_t repeats = 0;
  double max_seconds = 0;
  bool show = false, fresh = false;
  ContextFlags context;
  OutputFlags output_flags;
};

const char *text_or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

// A tuning file has no data of users: its values can be measured again.
void check_tuning(tandem_status status) {
  if (status == TANDEM_ERROR_DAMAGED)
    fail(kExitInputOutput, tandem_last_error_message(), "; a damaged tuning file may be deleted");
  check(status);
}

std::string path_of(const AutotuneFlags &flags) {
  char path[4096];
  check(tandem_tuning_path(text_or_null(flags.output), path, sizeof path));
  return path;
}

std::vector<tandem_tuning_entry> entries_of(const std::string &path) {
  std::size_t count = 0;
  check_tuning(tandem_tuning_read(path.c_str(), nullptr, 0, sizeof(tandem_tuning_entry), &count));
  std::vector<tandem_tuning_entry> entries(count);
  check_tuning(tandem_tuning_read(path.c_str(), entries.data(), count, sizeof(tandem_tuning_entry), &count));
  entries.resize(std::min(entries.size(), count));
  return entries;
}

Json to_json(const tandem_tuning_entry &entry) {
  return {{"backend", entry.backend},
          {"vendor", entry.vendor},
          {"device", entry.device},
          {"driver", entry.driver},
          {"kernel_hash", entry.kernel_hash},
          {"operation", operation_name(entry.operation)},
          {"k", entry.k},
          {"m", entry.m},
          {"memory", entry.on_device != 0 ? "device" : "host"},
          {"values", entry.values},
          {"bytes_per_second", entry.bytes_per_second},
          {"default_bytes_per_second", entry.default_bytes_per_second},
          {"shard_bytes", entry.shard_bytes},
          {"repeats", entry.repeats},
          {"date", entry.date}};
}

std::string gain(const tandem_tuning_entry &entry) {
  if (entry.default_bytes_per_second <= 0) return "the built-in values do not run";
  if (entry.bytes_per_second <= entry.default_bytes_per_second) return "built-in values kept";
  return fmt::format("{:.2f}x", entry.bytes_per_second / entry.default_bytes_per_second);
}

void print_table(const std::vector<tandem_tuning_entry> &entries) {
  std::string device;
  for (const tandem_tuning_entry &entry : entries) {
    const std::string here = fmt::format("{}: {} {}, {}", entry.backend, entry.vendor, entry.device, entry.driver);
    if (here != device) {
      fmt::print("{}{}\n", device.empty() ? "" : "\n", here);
      fmt::print("  {:<9} {:>3} {:>3} {:<6} {:>9}  {:<28} {}\n", "OPERATION", "K", "M", "MEMORY", "GB/S",
                 "OVER THE BUILT-IN VALUES", "VALUES");
      device = here;
    }
    fmt::print("  {:<9} {:>3} {:>3} {:<6} {:>9.2f}  {:<28} {}\n", operation_name(entry.operation), entry.k, entry.m,
               entry.on_device != 0 ? "device" : "host", entry.bytes_per_second / 1e9, gain(entry),
               *entry.values != 0 ? entry.values : "built-in");
  }
}

// The file's current content, and the result of the run if there was one.
void report(const AutotuneFlags &flags, const std::string &path, const tandem_autotune_result *result) {
  const std::vector<tandem_tuning_entry> entries = entries_of(path);
  if (flags.output_flags.json) {
    Json object = {{"command", "autotune"}, {"file", path}};
    if (result != nullptr) {
      object["seconds"] = result->seconds;
      object["complete"] = result->complete != 0;
      object["cases"] = result->case_count;
      object["improved"] = result->improved_count;
      object["candidates"] = result->candidate_count;
      object["refused"] = result->refused_count;
      object["wrong"] = result->wrong_count;
      object["dropped"] = result->dropped_count;
      object["known"] = result->known_count;
    }
    object["entries"] = Json::array();
    for (const tandem_tuning_entry &entry : entries) object["entries"].push_back(to_json(entry));
    return print_json(object);
  }
  if (flags.output_flags.quiet) return;
  print_table(entries);
  if (result == nullptr) {
    fmt::print("{}{}: {} {}\n", entries.empty() ? "" : "\n", printable(path), entries.size(),
               entries.size() == 1 ? "entry" : "entries");
    return;
  }
  fmt::print("\n{} of {} faster than with the built-in values; {} looked at", result->improved_count,
             plural(result->case_count, "case"), plural(result->candidate_count, "candidate"));
  if (result->refused_count != 0) fmt::print(", {} refused by the device", result->refused_count);
  if (result->wrong_count != 0) fmt::print(", {} WRONG", result->wrong_count);
  fmt::print("; {:.1f} s\nkept in {}\n", result->seconds, printable(path));
  if (result->known_count != 0)
    fmt::print("{} known from before; --fresh measures again\n", plural(result->known_count, "case"));
  if (result->complete == 0) fmt::print("the time ran out before all was measured\n");
}

std::int32_t on_progress(void *user, const tandem_autotune_progress *progress) {
  const double part = progress->total_count == 0
                          ? 1
                          : static_cast<double>(progress->done_count) / static_cast<double>(progress->total_count);
  std::string text = fmt::format("{} {}+{}", operation_name(progress->operation), progress->k, progress->m);
  if (progress->bytes_per_second > 0) text += fmt::format(", {:.2f} GB/s", progress->bytes_per_second / 1e9);
  if (progress->default_bytes_per_second > 0 && progress->bytes_per_second > 0)
    text += fmt::format(" ({:.2f}x)", progress->bytes_per_second / progress->default_bytes_per_second);
  return static_cast<Progress *>(user)->tick(part, progress->seconds_left, text) ? 1 : 0;
}

std::vector<std::string> ranges_of(const AutotuneFlags &flags) {
  if (flags.local_sizes.size() > std::size(kLocalSizes))
    fail(kExitWrongUsage, "--local-size is given once for each of at most three dimensions");
  std::vector<std::string> ranges = flags.settings;
  for (std::size_t i = 0; i < flags.local_sizes.size(); ++i)
    ranges.push_back(fmt::format("{}={}", kLocalSizes[i], flags.local_sizes[i]));
  return ranges;
}

tandem_autotune_result tune(const AutotuneFlags &flags, const std::string &path) {
  ContextFlags context = flags.context;
  if (!flags.device.empty()) {
    if (context.backend.empty()) fail(kExitWrongUsage, "--device needs --backend");
    context.backend += ":" + flags.device;
  }
  const std::vector<std::string> ranges = ranges_of(flags);
  const std::vector<const char *> range_pointers = pointers(ranges);
  auto options = sized<tandem_autotune_options>();
  options.operations = text_or_null(flags.operations);
  options.ks = text_or_null(flags.ks);
  options.ms = text_or_null(flags.ms);
  options.ranges = range_pointers.data();
  options.range_count = range_pointers.size();
  options.shard_bytes = flags.shard_bytes;
  options.repeats = flags.repeats;
  options.fresh = flags.fresh;
  options.on_device = flags.memory == "device" ? 1 : 0;
  options.max_seconds = flags.max_seconds;
  options.output = path.c_str();
  auto result = sized<tandem_autotune_result>();
  tandem_status status;
  {
    Progress progress("autotune", flags.output_flags);
    options.progress = on_progress;
    options.progress_user = &progress;
    const ContextOptions where(context);
    status = tandem_autotune(where.get(), &options, &result);
  }
  if (status == TANDEM_ERROR_CANCELLED)
    fail(128 + caught_signal(), "interrupted; finished cases are kept in ", path, ": run it again to go on");
  check_tuning(status);
  return result;
}

int autotune(const AutotuneFlags &flags) {
  const std::string path = path_of(flags);
  if (!flags.merged.empty()) {
    const std::vector<const char *> files = pointers(flags.merged);
    check_tuning(tandem_tuning_merge(files.data(), files.size(), path.c_str(), nullptr));
  }
  if (flags.show || !flags.merged.empty()) {
    report(flags, path, nullptr);
    return kExitDone;
  }
  const tandem_autotune_result result = tune(flags, path);
  report(flags, path, &result);
  return kExitDone;
}

}  // namespace

void add_autotune_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<AutotuneFlags>();
  CLI::App *command =
      app.add_subcommand("autotune", "Find the fastest settings of a backend and store them in the tuning file");
  command->add_option("--device", flags->device, "One of the backend's devices, such as 0 or 0:1")->type_name("NAME");
  command
      ->add_option("--memory", flags->memory,
                   "Where the shards are. host: transfers are measured too. device: the kernel alone is measured")
      ->check(one_of({"host", "device"}))
      ->capture_default_str();
  command
      ->add_option("--operation", flags->operations,
                   "Operations to measure, of encode, decode, verify, update; default: encode,decode")
      ->type_name("LIST");
  command->add_option("-k,--data", flags->ks, "Data shards: a number, list or RANGE; default: 10")->type_name("RANGE");
  command->add_option("-m,--parity", flags->ms, "Parity shards, each with every k; default: 4")->type_name("RANGE");
  command
      ->add_option("--local-size", flags->local_sizes,
                   "Sizes of a work-group to try, once for each dimension: 32,64,96 or 16:1024:x2")
      ->type_name("RANGE")
      ->allow_extra_args(false)
      ->group(kExpert);
  command->add_option("--set", flags->settings, "Values to try for another setting (repeatable)")
      ->type_name("NAME=RANGE")
      ->allow_extra_args(false)
      ->group(kExpert);
  command->add_option("--shard-bytes", flags->shard_bytes, "Bytes of a shard; default: the stripe has 32 to 64 MiB")
      ->transform(size_value());
  command->add_option("--repeats", flags->repeats, "Repeats of each measurement; default: 5")->group(kExpert);
  command->add_option("--max-seconds", flags->max_seconds, "Stop after about this time; default: measure everything");
  command->add_option("--output", flags->output, "The tuning file; default: the one that Tandem reads")
      ->type_name("FILE");
  command->add_flag("--fresh", flags->fresh, "Measure cases again that an earlier run has finished");
  command->add_flag("--show", flags->show, "Print the tuning file; measure nothing");
  command->add_option("--merge", flags->merged, "Add the contents of these files from other machines; measure nothing")
      ->type_name("FILE")
      ->expected(1, 1000);
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output_flags);
  command->callback([flags, &invocation] { invocation.run = [flags] { return autotune(*flags); }; });
}

}  // namespace tandem::cli
