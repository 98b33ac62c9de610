// The commands and options of a program as data. --help, the manual pages and the completions of shells are made from
// it.
#pragma once

#include <string>
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
// The help, and what else is to be known: whether it is required, its words, its default, what it needs and excludes.
std::string full_help(const OptionText &option);

struct Paragraph {
  std::vector<std::string> lines;  // preformatted: as they are; else one
  bool is_preformatted;
};
// Indented lines of a text stand as they are, others flow.
std::vector<Paragraph> paragraphs(const std::string &text);

// Refuses other words, and names the nearest. In place of CLI::IsMember.
CLI::Validator one_of(std::vector<std::string> words);
// The matrices of the library: refuses what is none. Those with local groups are listed where they can be used.
CLI::Validator matrix_value(bool with_local_groups);

}  // namespace tandem::cli
