// tandem verify PATH...
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> paths;
  std::string set_id;
  OutputFlags output;
  ContextFlags context;
};

struct BadBlock {
  std::string path;
  std::uint32_t shard_index;
  std::uint64_t block_number;
};

constexpr std::size_t kMostListed = 1000;

void note_bad_block(void *user, const char *path, std::uint32_t shard_index, std::uint64_t block_number) {
  auto &list = *static_cast<std::vector<BadBlock> *>(user);
  if (list.size() < kMostListed) list.push_back({path, shard_index, block_number});
}

std::string describe(std::uint32_t condition) {
  std::string text;
  const auto add = [&](std::uint32_t bit, const char *words) {
    if ((condition & bit) == 0) return;
    if (!text.empty()) text += ", ";
    text += words;
  };
  add(TANDEM_FILES_START_DAMAGED, "start damaged");
  add(TANDEM_FILES_END_DAMAGED, "end damaged");
  add(TANDEM_FILES_WRONG_LENGTH, "wrong length");
  return text;
}

int verify(const VerifyFlags &flags) {
  const Search found = search(flags.paths, flags.output);
  const Context context = make_context(flags.context);
  const char *set_id = flags.set_id.empty() ? nullptr : flags.set_id.c_str();
  std::size_t set_index = 0;
  check(tandem_files_search_choose(found.get(), set_id, &set_index));
  tandem_files_set set = {};
  set.struct_bytes = sizeof set;
  check(tandem_files_search_set(found.get(), set_index, &set));

  std::vector<BadBlock> bad_blocks;
  tandem_files_verify_options options = {};
  options.struct_bytes = sizeof options;
  options.set_id_prefix = set_id;
  options.bad_block = note_bad_block;
  options.bad_block_user = &bad_blocks;
  tandem_files_verify_result result = {};
  result.struct_bytes = sizeof result;
  {
    Progress progress("verify", flags.output);
    options.progress = Progress::callback;
    options.progress_user = &progress;
    check(tandem_files_verify(context.get(), found.get(), &options, &result));
  }
  std::sort(bad_blocks.begin(), bad_blocks.end(), [](const BadBlock &a, const BadBlock &b) {
    return std::tie(a.path, a.block_number) < std::tie(b.path, b.block_number);
  });

  constexpr const char *kStates[] = {"intact", "recoverable", "not recoverable"};
  std::vector<bool> seen(set.k + set.m, false);
  std::vector<tandem_files_shard> damaged_ends;
  for (std::size_t i = 0; i < set.file_count; ++i) {
    tandem_files_shard shard = {};
    shard.struct_bytes = sizeof shard;
    check(tandem_files_search_shard(found.get(), set_index, i, &shard));
    seen[shard.index] = true;
    if (shard.condition != 0) damaged_ends.push_back(shard);
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < set.k + set.m; ++i)
    if (!seen[i]) missing.push_back(i);

  if (flags.output.json) {
    nlohmann::ordered_json object = {{"command", "verify"},
                                     {"set_id", hexadecimal(set.set_id)},
                                     {"state", kStates[result.state]},
                                     {"k", set.k},
                                     {"m", set.m},
                                     {"stripe_count", set.stripe_count},
                                     {"missing_shards", missing},
                                     {"damaged_file_count", result.damaged_file_count},
                                     {"bad_block_count", result.bad_block_count},
                                     {"worst_bad_count", result.worst_bad_count},
                                     {"lost_stripe_count", result.lost_stripe_count},
                                     {"read_bytes", result.read_bytes},
                                     {"seconds", result.seconds}};
    object["damaged_ends"] = nlohmann::ordered_json::array();
    for (const tandem_files_shard &shard : damaged_ends)
      object["damaged_ends"].push_back(
          {{"path", shard.path}, {"shard", shard.index}, {"damage", describe(shard.condition)}});
    object["bad_blocks"] = nlohmann::ordered_json::array();
    for (const BadBlock &block : bad_blocks)
      object["bad_blocks"].push_back(
          {{"path", block.path}, {"shard", block.shard_index}, {"block", block.block_number}});
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (!flags.output.quiet) {
    for (const std::uint32_t shard : missing) fmt::print("shard {}: missing\n", shard);
    for (const tandem_files_shard &shard : damaged_ends)
      fmt::print("{}: shard {}: {}\n", shard.path, shard.index, describe(shard.condition));
    for (const BadBlock &block : bad_blocks)
      fmt::print("{}: shard {}: block {} is damaged\n", block.path, block.shard_index, block.block_number);
    if (result.bad_block_count > bad_blocks.size())
      fmt::print("... and {} more damaged blocks\n", result.bad_block_count - bad_blocks.size());
    fmt::print("set {}: {}; {}, {}, at most {} bad or missing in a stripe of {} + {}\n", hexadecimal(set.set_id),
               kStates[result.state], plural(missing.size(), "missing shard"),
               plural(result.bad_block_count, "damaged block"), result.worst_bad_count, set.k, set.m);
    fmt::print("{} read in {:.2f} s, {}\n", size(result.read_bytes), result.seconds,
               rate(result.read_bytes, result.seconds));
  }
  return result.state == TANDEM_FILES_INTACT        ? kExitDone
         : result.state == TANDEM_FILES_RECOVERABLE ? kExitDamageFound
                                                    : kExitNotRecoverable;
}

}  // namespace

void add_verify_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<VerifyFlags>();
  CLI::App *command = app.add_subcommand("verify", "Check every block of a set and say what is damaged");
  command->add_option("PATH", flags->paths, "Shard files, or folders with shard files")->required();
  command->add_option("--set", flags->set_id, "Id of the set, or its first digits, where there are several");
  add_context_flags(*command, flags->context);
  add_output_flags(*command, flags->output);
  command->callback([flags, &invocation] { invocation.run = [flags] { return verify(*flags); }; });
}

}  // namespace tandem::cli
