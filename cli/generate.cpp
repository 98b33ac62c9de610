// SPDX-License-Identifier: Apache-2.0
// tandem generate: the manual pages and completions, for the build. Not in --help.
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "cli/commands.hpp"
#include "cli/pages.hpp"

namespace tandem::cli {
namespace {

struct GenerateFlags {
  std::string what, folder;
};

int generate(const GenerateFlags &flags, const CLI::App &app) {
  const CommandText program = describe(app);
  std::vector<std::pair<std::string, std::string>> files;
  if (flags.what == "man") {
    files = manual_pages(program, tandem_version_string());
  } else if (flags.what == "bash") {
    files.emplace_back(program.name, bash_completion(program));
  } else {
    files.emplace_back("_" + program.name, zsh_completion(program));
  }
  for (const auto &[name, content] : files) {
    const std::string path = flags.folder + "/" + name;
    std::ofstream file(path);
    file << content;
    file.close();
    if (!file) fail(kExitInputOutput, "cannot write ", path, ": ", std::strerror(errno));
  }
  return kExitDone;
}

}  // namespace

void add_generate_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App *command = app.add_subcommand("generate", "Write manual pages or completions to a folder")->group("");
  command->add_option("WHAT", flags->what, "What is made")->check(one_of({"man", "bash", "zsh"}))->required();
  command->add_option("FOLDER", flags->folder, "Where it is written")->required();
  command->callback([flags, &app, &invocation] { invocation.run = [flags, &app] { return generate(*flags, app); }; });
}

}  // namespace tandem::cli
