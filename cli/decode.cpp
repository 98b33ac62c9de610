// tandem decode PATH... -o FILE
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"

namespace tandem::cli {
namespace {

struct DecodeFlags {
  std::vector<std::string> paths;
  std::string output_path, set_id;
  bool force = false, no_sync = false, dry_run = false;
  std::uint32_t lock_wait_seconds = 0;
  OutputFlags output;
  ContextFlags context;
};

int decode_found(const DecodeFlags &flags, const Search &found) {
  const bool to_stdout = flags.output_path == "-";
  const Context context = make_context(flags.context);
  tandem_files_decode_options options = {};
  options.struct_bytes = sizeof options;
  if (!flags.set_id.empty()) options.set_id_prefix = flags.set_id.c_str();
  if (to_stdout) {
    options.output_descriptor = STDOUT_FILENO;
  } else {
    options.output_path = flags.output_path.c_str();
  }
  options.force = flags.force;
  options.no_sync = flags.no_sync;
  options.lock_wait_seconds = flags.lock_wait_seconds;
  options.dry_run = flags.dry_run;
  options.thread_count = flags.context.thread_count;
  tandem_files_result result = {};
  result.struct_bytes = sizeof result;
  {
    Progress progress("decode", flags.output);
    options.progress = Progress::callback;
    options.progress_user = &progress;
    check(tandem_files_decode(context.get(), found.get(), &options, &result));
  }

  const tandem_context_info info = query(context);
  if (flags.output.json) {
    nlohmann::ordered_json object = report("decode", result, info);
    object["shards_read"] = result.shards_read;
    object["rebuilt_block_count"] = result.rebuilt_block_count;
    object["bad_block_count"] = result.bad_block_count;
    object["output"] = flags.output_path;
    object["dry_run"] = flags.dry_run;
    print_json(object);
  } else if (!flags.output.quiet) {
    std::FILE *stream = to_stdout ? stderr : stdout;
    fmt::print(stream, "{}: {} from {}, digest {} as it was\n",
               flags.dry_run ? "nothing written"
               : to_stdout   ? "standard output"
                             : flags.output_path,
               size(result.content_bytes), plural(result.shards_read, "shard"), hexadecimal(result.digest));
    fmt::print(stream, "{}, {} rebuilt\n", speed(result, info), plural(result.rebuilt_block_count, "block"));
    if (result.bad_block_count != 0)
      fmt::print(stderr, "tandem: note: {} damaged on the way; `tandem verify` lists the damage\n",
                 result.bad_block_count == 1 ? "1 block was" : fmt::format("{} blocks were", result.bad_block_count));
  }
  return kExitDone;
}

int decode(const DecodeFlags &flags) {
  const bool to_stdout = flags.output_path == "-";
  if (to_stdout && flags.output.json)
    throw Failure{kExitWrongUsage, "--json and -o - both want standard output; choose one"};
  recover(flags.paths, flags.dry_run, flags.output, flags.lock_wait_seconds);
  struct stat status;
  const bool to_stream = to_stdout || (stat(flags.output_path.c_str(), &status) == 0 && !S_ISREG(status.st_mode));
  return with_search(flags.paths, flags.output, flags.dry_run || !to_stream,
                     [&](const Search &found) { return decode_found(flags, found); });
}

}  // namespace

void add_decode_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<DecodeFlags>();
  CLI::App *command = app.add_subcommand("decode", "Put a file back together from any k of its shard files");
  command->add_option("PATH", flags->paths, "Shard files, or folders with shard files, in any order and by any name")
      ->required();
  command->add_option("-o,--output", flags->output_path, "The file to write; - writes standard output")->required();
  command->add_option("--set", flags->set_id, "Id of the set, or its first digits, where there are several");
  command->add_flag("--force", flags->force, "Replace the output if it exists");
  command->add_flag("--dry-run", flags->dry_run, "Decode and compare the digest, write nothing");
  command->add_flag("--no-sync", flags->no_sync, "Do not wait until the bytes are on the disk");
  add_lock_wait_flag(*command, flags->lock_wait_seconds);
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return decode(*flags); }; });
}

}  // namespace tandem::cli
