// SPDX-License-Identifier: Apache-2.0
#include "cli/help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <span>

#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

constexpr std::size_t kHelpColumn = 28;

// A name, and its meaning beside it or below it.
std::string row(const std::string &name, const std::string &help, std::size_t columns) {
  std::string text = "  " + name;
  if (help.empty()) return text + "\n";
  if (text.size() + 2 > kHelpColumn) {
    text += '\n' + std::string(kHelpColumn, ' ');
  } else {
    text.resize(kHelpColumn, ' ');
  }
  return text + wrapped(help, kHelpColumn, columns) + "\n";
}

// "--data N" lies below "-k, --data N".
std::string indented_signature(const OptionText &option) {
  return (option.by_position || !option.names[0].starts_with("--") ? "" : "    ") + signature(option);
}

std::string options_text(const CommandText &command, const std::string &group, std::size_t columns) {
  std::string text;
  for (const OptionText &option : command.options)
    if (!option.by_position && option.group == group)
      text += row(indented_signature(option), full_help(option), columns);
  return text.empty() ? "" : "\n" + group + ":\n" + text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App *app, std::string, CLI::AppFormatMode mode) const override {
    const HelpOf which = mode == CLI::AppFormatMode::All ? HelpOf::all_options : HelpOf::usual_options;
    return help_text(describe(*app), which, help_columns());
  }
};

// From the program to the command that was named.
std::vector<const CLI::App *> named_commands(const CLI::App &app) {
  std::vector<const CLI::App *> chain = {&app};
  for (std::vector<CLI::App *> next = app.get_subcommands(); !next.empty(); next = next.back()->get_subcommands())
    chain.push_back(next.back());
  return chain;
}

std::vector<std::string> option_names(const CommandText &command) {
  std::vector<std::string> names;
  for (const OptionText &option : command.options)
    if (!option.by_position) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// "volume create". Every message begins with the program, so it is left out. "": the program itself.
std::string own_name(const CommandText &command) {
  const std::size_t space = command.name.find(' ');
  return space == std::string::npos ? "" : command.name.substr(space + 1);
}

std::string lacks(const CommandText &command) {
  const std::string name = own_name(command);
  return name.empty() ? "there is no" : name + " has no";
}

// `tandem par2 sync photos` for `tandem sync photos`: the command line for a word of other programs. "": not known.
std::string meant(const CommandText &program, const std::vector<std::string> &names,
                  const std::vector<std::string> &words) {
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  if (!own_name(program).empty()) return "";
  if (words[0] == "version") return program.name + " --version";
  const bool is_scrub = words[0] == "scrub";
  constexpr const char *kProtect[] = {"sync", "protect", "backup"};
  if ((!is_scrub && std::ranges::find(kProtect, words[0]) == std::end(kProtect)) || !has("encode") || !has("par2"))
    return "";
  std::string rest;
  for (std::size_t i = 1; i < words.size() && !words[i].starts_with('-'); ++i) rest += " " + word_for_shell(words[i]);
  if (rest.empty()) rest = " FOLDER";
  std::error_code error;
  if (!is_scrub && rest != " FOLDER" && std::filesystem::is_regular_file(words[1], error))
    return program.name + " encode" + rest + " -k 4 -m 2 -o FOLDER";
  return program.name + " par2 " + (is_scrub ? "scrub" : "sync") + rest;
}

// The first word that no command takes.
std::string unknown_word(const CLI::App &app) {
  for (const CLI::App *each : named_commands(app)) {
    const std::vector<std::string> left = each->remaining();
    if (left.empty()) continue;
    const CommandText command = describe(*each);
    const bool is_option = left[0].size() > 1 && left[0][0] == '-';
    if (is_option) {
      const std::string name = left[0].substr(0, left[0].find('='));
      if (own_name(command) == "encode" && (name.starts_with("-r") || name == "--redundancy"))
        return fmt::format("encode has no option {}; did you mean -k 10 -m 1, which adds 10%?", name);
      return fmt::format("{} option {}{}", lacks(command), name, did_you_mean(name, option_names(command)));
    }
    if (command.commands.empty()) return fmt::format("unexpected argument \"{}\"; usage: {}", left[0], usage(command));
    return no_such_command(command, left);
  }
  return "";
}

// Replaces "A<middle>B" by make(A, B).
template <class Make>
std::string reworded(const std::string &text, std::string_view middle, Make make) {
  const std::size_t at = text.find(middle);
  return at == std::string::npos ? text : make(text.substr(0, at), text.substr(at + middle.size()));
}

}  // namespace

std::string no_such_command(const CommandText &command, const std::vector<std::string> &words) {
  const std::string &word = words[0];
  std::vector<std::string> names;
  for (const CommandText &each : command.commands) names.push_back(each.last_word());
  std::string near = did_you_mean(word, names);
  if (const std::string line = meant(command, names, words); !line.empty())
    near = fmt::format("; did you mean `{}`?", line);
  const std::string known = near.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : near;
  return fmt::format("{} command \"{}\"{}", lacks(command), word, known);
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string lines;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > indent && column + 1 + word.size() > columns) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

std::size_t help_columns() { return std::clamp<std::size_t>(terminal_columns(STDOUT_FILENO), 60, 120); }

std::string help_text(const CommandText &command, HelpOf which, std::size_t columns) {
  std::string text =
      wrapped("Usage: " + usage(command), 0, columns) + "\n\n" + wrapped(command.summary, 0, columns) + "\n";
  std::string arguments;
  for (const OptionText &option : command.options)
    if (option.by_position) arguments += row(signature(option), full_help(option), columns);
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  for (const std::string &group : groups_of(command))
    text += group != kExpert || which == HelpOf::all_options
                ? options_text(command, group, columns)
                : "\n" + wrapped("More options, for experts: " + command.name + " --help-all", 0, columns) + "\n";
  if (!command.commands.empty()) text += "\nCommands:\n";
  for (const CommandText &each : command.commands) text += row(each.last_word(), each.summary, columns);
  for (const Paragraph &paragraph : paragraphs(command.footer)) {
    text += '\n';
    for (const std::string &line : paragraph.lines)
      text += (paragraph.is_preformatted ? line : wrapped(line, 0, columns)) + "\n";
  }
  return text;
}

void use_help_text(CLI::App &app) { app.formatter(std::make_shared<HelpFormatter>()); }

std::string sentence_of(const CLI::ParseError &error, const CLI::App &app) {
  const std::string text = error.what(), command = describe(*named_commands(app).back()).name;
  const bool may_be_unknown = dynamic_cast<const CLI::RequiredError *>(&error) != nullptr ||
                              dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr;
  if (may_be_unknown)
    if (const std::string unknown = unknown_word(app); !unknown.empty()) return unknown;
  if (text == "A subcommand is required") {
    const std::vector<CommandText> commands = describe(*named_commands(app).back()).commands;
    const bool has_encode = std::ranges::find(commands, "encode", &CommandText::last_word) != commands.end();
    const std::string example =
        has_encode ? fmt::format(", such as `{} encode FILE -k 4 -m 2 -o FOLDER`", command) : "";
    return fmt::format("a command is required{}; see {} --help", example, command);
  }
  if (dynamic_cast<const CLI::RequiredError *>(&error) != nullptr)
    return fmt::format("{}; see {} --help", text, command);
  if (dynamic_cast<const CLI::ConversionError *>(&error) != nullptr) {
    const std::string prefix = "Could not convert: ";
    return reworded(text.starts_with(prefix) ? text.substr(prefix.size()) : text, " = ",
                    [](const std::string &option, const std::string &value) {
                      return fmt::format("{}: {} is not a number, or too large", option, value);
                    });
  }
  if (dynamic_cast<const CLI::RequiresError *>(&error) != nullptr)
    return reworded(text, " requires ", [](const std::string &one, const std::string &other) {
      return fmt::format("{} works only with {}", one, other);
    });
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error) != nullptr) {
    if (text.ends_with(" missing"))
      return reworded(text, ":",
                      [](const std::string &option, const std::string &) { return option + " needs a value"; });
    return reworded(text, ": At Most 1 required but received ",
                    [](const std::string &option, const std::string &count) {
                      return fmt::format("{} was given {} times", option, count);
                    });
  }
  return text;
}

}  // namespace tandem::cli
