// tandem decode PATH... -o FILE
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/output.hpp"

namespace tandem::cli {
namespace {

struct DecodeFlags {
  SetFlags set;
  std::string output_path;
  WriteFlags write;
  OutputFlags output;
  ContextFlags context;
};

int decode_found(const DecodeFlags &flags, const Output &output, const SearchOwner &found, Ranks *ranks) {
  const ContextOwner context = make_context(flags.context);
  auto options = sized<tandem_files_decode_options>();
  options.set_id_prefix = flags.set.set_id_prefix();
  if (output.descriptor >= 0) {
    options.output_descriptor = output.descriptor;
  } else {
    options.output_path = output.path.c_str();
  }
  flags.write.set(options);
  options.thread_count = flags.context.thread_count;
  auto result = sized<tandem_files_result>();
  run_with_progress("decode", flags.output, options, [&] {
    return ranks != nullptr ? ranks->decode(context.get(), flags.set.paths, options, &result)
                            : tandem_files_decode(context.get(), found.get(), &options, &result);
  });
  if (ranks != nullptr && !ranks->leads()) return kExitDone;

  const tandem_context_info info = query(context);
  if (flags.output.json) {
    nlohmann::ordered_json object = report("decode", result, info);
    object["shards_read"] = result.shards_read;
    object["rebuilt_block_count"] = result.rebuilt_block_count;
    object["bad_block_count"] = result.bad_block_count;
    object["output"] = flags.output_path;
    object["dry_run"] = flags.write.dry_run;
    print_json(object);
  } else if (!flags.output.quiet) {
    std::FILE *stream = output.is_stream() && output.descriptor != STDERR_FILENO ? stderr : stdout;
    fmt::print(stream, "{}: {} from {}, digest {} as it was\n",
               flags.write.dry_run        ? "nothing written"
               : flags.output_path == "-" ? "standard output"
                                          : printable(flags.output_path),
               size(result.content_bytes), plural(result.shards_read, "shard"), hexadecimal(result.digest));
    fmt::print(stream, "{}, {} rebuilt\n", speed(result, info), plural(result.rebuilt_block_count, "block"));
    if (result.bad_block_count != 0)
      complain(fmt::format(
          "note: {} damaged on the way; `tandem verify` lists the damage",
          result.bad_block_count == 1 ? "1 block was" : fmt::format("{} blocks were", result.bad_block_count)));
  }
  return kExitDone;
}

int decode(DecodeFlags flags, Ranks *ranks) {
  if (ranks != nullptr) ranks->adapt(flags.context);
  const Output output = output_of(flags.output_path);
  if (flags.output.json && output.is_standard_output())
    throw Failure{kExitWrongUsage,
                  fmt::format("--json and -o {} both want standard output; choose one", flags.output_path)};
  if (ranks == nullptr || ranks->leads())
    recover(flags.set.paths, flags.write.dry_run, flags.output, flags.write.lock_wait_seconds);
  if (ranks != nullptr)
    return decode_found(flags, output, nullptr, ranks);  // each rank searches; none alone repeats it
  // What went into a stream cannot be written again.
  return with_search(flags.set.paths, flags.output, flags.write.dry_run || !output.is_stream(),
                     [&](const SearchOwner &found) { return decode_found(flags, output, found, nullptr); });
}

}  // namespace

void add_decode_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<DecodeFlags>();
  CLI::App *command = app.add_subcommand("decode", "Put a file back together from any k of its shard files");
  add_set_flags(*command, flags->set, "Shard files, or folders with shard files, in any order and by any name");
  command->add_option("-o,--output", flags->output_path, "The file to write; - writes standard output")
      ->type_name("FILE")
      ->required();
  add_write_flags(*command, flags->write, "Replace the output if it exists",
                  "Decode and compare the digest, write nothing");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return decode(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
