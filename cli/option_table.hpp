// SPDX-License-Identifier: Apache-2.0
// The commands and options of a program as data: the source of --help, of which the manual pages are made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace tandem::cli {

// The group of options that few users need.
inline constexpr const char *kExpert = "Expert";

struct OptionText {
  std::vector<std::string> names;   // "-k", "--data"; of an argument by position: "FILE"
  std::string argument;             // "N", "FILE"; "": a flag
  std::vector<std::string> values;  // the words that it takes; none: no list
  std::string group, help, preset;  // preset: the default
  std::vector<std::string> needs, excludes;
  bool by_position = false, is_required = false;
  bool is_repeatable = false;         // may be given several times
  bool is_list = false;               // takes words with commas between
  bool is_argument_optional = false;  // may be given without its argument
};

struct CommandText {
  std::string name;  // "tandem volume create"
  std::string summary, footer;
  bool runs_a_command = false;  // what follows its options is a command with arguments
  bool needs_command = false;   // one of `commands` must be named
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
  std::string last_word() const;  // "create"
};

// What the user may see of `app`. In texts `tandem ...` gets the name of the program that has the command.
CommandText describe(const CLI::App &app);
// The groups of options, that of experts last.
std::vector<std::string> groups_of(const CommandText &command);
// "tandem encode FILE -k N -m N -o FOLDER [OPTIONS]"
std::string usage(const CommandText &command);
// "-k, --data N"
std::string signature(const OptionText &option);
// The help, whether the option is required, its words, its default, and the options that it needs and excludes.
std::string full_help(const OptionText &option);

struct Paragraph {
  std::vector<std::string> lines;  // one line, unless preformatted
  bool is_preformatted;
};
// Indented lines of a text are preformatted. Others flow.
std::vector<Paragraph> paragraphs(const std::string &text);

// "; did you mean WORD?" with the word that the user probably meant by `text`; "": no word is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string> &words);

// Refuses other words, and names the nearest word. Replaces CLI::IsMember.
CLI::Validator one_of(std::vector<std::string> words);
// Refuses a name that is no matrix of the library. The list has those for shard sets and volumes, which know no local
// groups, or those for raw shards of a stripe: all over GF(2^8).
enum class MatrixUse { sets, raw_shards };
CLI::Validator matrix_value(MatrixUse use);

}  // namespace tandem::cli
