// SPDX-License-Identifier: Apache-2.0
// Manual pages, and completions for bash and zsh, made from the table of options.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/option_table.hpp"

namespace tandem::cli {

// Names ("tandem-encode.1") and contents: a page for the program, one for each command with the commands below it.
std::vector<std::pair<std::string, std::string>> manual_pages(const CommandText &program, const std::string &version);
std::string bash_completion(const CommandText &program);
std::string zsh_completion(const CommandText &program);  // that of bash, by bashcompinit

}  // namespace tandem::cli
