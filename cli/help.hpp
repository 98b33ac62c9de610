// SPDX-License-Identifier: Apache-2.0
// --help, `help`, and the messages about wrong arguments.
#pragma once

#include <string>
#include <string_view>

#include "cli/option_table.hpp"

namespace CLI {
class ParseError;
}

namespace tandem::cli {

// The help of a command, in lines of at most `columns`.
enum class HelpOf { usual_options, all_options };
std::string help_text(const CommandText &command, HelpOf which, std::size_t columns);
// As wide as the terminal on standard output, in bounds; 80 without one.
std::size_t help_columns();

// Lines of at most `columns`, all but the first indented.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

// "volume has no command "crate"; did you mean create?"
// words: that one, and those after it.
std::string no_such_command(const CommandText &command, const std::vector<std::string> &words);

// For all commands that are added to `app` from now on.
void use_help_text(CLI::App &app);
// The reason why the arguments of `app` cannot be parsed.
std::string sentence_of(const CLI::ParseError &error, const CLI::App &app);

}  // namespace tandem::cli
