// SPDX-License-Identifier: Apache-2.0
// tandem encode FILE -k K -m M -o DIR
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/file_report.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

struct EncodeFlags {
  std::string source, matrix, name, set_id;
  std::vector<std::string> folders;
  std::uint32_t k = 0, m = 0;
  std::uint64_t block_bytes = 0;
  bool allow_non_mds = false;
  WriteFlags write;
  OutputFlags output;
  ContextFlags context;
};

// The 32 hexadecimal digits of a set id.
std::array<std::uint8_t, 16> parse_set_id(const std::string &text) {
  std::array<std::uint8_t, 16> id = {};
  std::string digits = text;
  for (char &each : digits) each = each >= 'A' && each <= 'F' ? static_cast<char>(each - 'A' + 'a') : each;
  if (!base::parse_hexadecimal(digits, id))
    fail(kExitWrongUsage, "--set-id ", text, " is not ", 2 * id.size(), " hexadecimal digits");
  return id;
}

int encode(EncodeFlags flags, Ranks *ranks) {
  if (ranks != nullptr) ranks->adapt(flags.context);
  const bool from_stdin = flags.source == "-";
  auto options = sized<tandem_files_encode_options>();
  options.k = flags.k;
  options.m = flags.m;
  if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &options.matrix));
  if (flags.block_bytes > UINT32_MAX) fail(kExitWrongUsage, "--block-bytes ", flags.block_bytes, " is too large");
  options.block_bytes = static_cast<std::uint32_t>(flags.block_bytes);
  options.allow_non_mds = flags.allow_non_mds;
  std::array<std::uint8_t, 16> set_id;
  if (!flags.set_id.empty()) {
    set_id = parse_set_id(flags.set_id);
    options.set_id = set_id.data();
  }
  flags.write.set(options);
  options.thread_count = flags.context.thread_count;
  if (from_stdin) {
    options.source_descriptor = STDIN_FILENO;
  } else {
    options.source_path = flags.source.c_str();
  }
  const std::string name = !flags.name.empty() ? flags.name
                           : from_stdin        ? "stdin"
                                               : flags.source.substr(flags.source.find_last_of('/') + 1);
  options.name = name.c_str();
  constexpr std::uint32_t kMost = TANDEM_FILES_MAX_SHARDS;
  const std::uint32_t shard_count = flags.k <= kMost && flags.m <= kMost - flags.k ? flags.k + flags.m : 0;
  const std::vector<std::string> folders = expand_index(flags.folders, shard_count);
  const std::vector<const char *> folder_pointers = pointers(folders);
  options.folders = folder_pointers.data();
  options.folder_count = folder_pointers.size();

  allow_open_files();
  options.note = print_note;
  const ContextOwner context = make_context(flags.context);
  auto result = sized<tandem_files_result>();
  run_with_progress("encode", flags.output, options, [&] {
    return ranks != nullptr ? ranks->encode(context.get(), options, &result)
                            : tandem_files_encode(context.get(), &options, &result);
  });
  if (ranks != nullptr && !ranks->leads()) return kExitDone;

  const tandem_context_info info = query(context);
  if (flags.output.json) {
    Json object = report("encode", result, info);
    object["source"] = flags.source;
    object["name"] = name;
    object["dry_run"] = flags.write.dry_run;
    for (std::uint32_t i = 0; i < shard_count; ++i)
      object["shards"].push_back(fmt::format("{}/{}.{:03}.tandem", folders[i % folders.size()], name, i));
    print_json(object);
  } else if (flags.write.dry_run && !flags.output.quiet) {
    fmt::print("{} would become {} + {} shards in {}; nothing was written\n",
               from_stdin ? "standard input" : printable(flags.source), result.k, result.m,
               printable(fmt::format("{}", fmt::join(flags.folders, ", "))));
  } else if (!flags.output.quiet) {
    fmt::print("{}: {} in {} + {} shards of {}, {} {} of which are enough\n",
               printable(from_stdin ? name : flags.source), size(result.content_bytes), result.k, result.m,
               size(result.written_bytes / shard_count), result.any_k_suffice != 0 ? "any" : "not any", result.k);
    fmt::print("set {}  digest {}\n{}\n", hexadecimal(result.set_id), hexadecimal(result.digest), speed(result, info));
  }
  return kExitDone;
}

}  // namespace

void add_encode_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<EncodeFlags>();
  CLI::App *command = app.add_subcommand("encode", "Split a file into k data and m parity shard files");
  command->add_option("FILE", flags->source, "The file; - reads standard input")->required();
  command->add_option("-k,--data", flags->k, "Data shards, at least 1")->required();
  command
      ->add_option("-m,--parity", flags->m,
                   fmt::format("Parity shards; k + m is at most {}, and more than 256 need a --matrix over GF(2^16)",
                               TANDEM_FILES_MAX_SHARDS))
      ->required();
  command
      ->add_option(
          "-o,--output", flags->folders,
          "Folder for the shard files, made if missing. Given several times, shards go to the folders in turn; "
          "{i} stands for the shard's index")
      ->type_name("FOLDER")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--name", flags->name, "First part of the shard files' names; default: the name of FILE")
      ->type_name("NAME");
  command->add_option("--matrix", flags->matrix, "Generator matrix (docs/matrices.md)")
      ->check(matrix_value(MatrixUse::sets))
      ->default_str("isal-cauchy")
      ->type_name("NAME")
      ->group(kExpert);
  command
      ->add_option("--set-id", flags->set_id,
                   "Id of the set: 32 hexadecimal digits that no other set has; default: random")
      ->type_name("ID")
      ->group(kExpert);
  command
      ->add_flag("--allow-non-mds", flags->allow_non_mds,
                 "Accept a matrix that cannot recover from every loss of m shards")
      ->group(kExpert);
  command
      ->add_option("--block-bytes", flags->block_bytes,
                   "Bytes of a block in a shard file, such as 64k or 1M; a multiple of 64")
      ->transform(size_value())
      ->group(kExpert);
  add_write_flags(*command, flags->write, "Replace the sets of the same name in these folders",
                  "Check everything that can be checked, write nothing");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->footer(fmt::format(
      "Any 10 of these 14 shard files give the video back:\n  {} encode video.mp4 -k 10 -m 4 -o shards\n\n{}",
      app.get_name(), app.get_footer()));
  command->callback(
      [flags, &invocation] { invocation.run = [flags, &invocation] { return encode(*flags, invocation.ranks); }; });
}

}  // namespace tandem::cli
