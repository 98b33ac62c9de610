// SPDX-License-Identifier: Apache-2.0
#include "cli/option_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "tandem/tandem.h"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

// In texts programs are called `tandem`. A command of `program` gets that name, others belong to the command `tandem`.
std::string with_name(std::string text, const CLI::App &program) {
  constexpr std::string_view kName = "tandem ";
  const std::vector<const CLI::App *> commands = program.get_subcommands({});
  for (std::size_t at = 0; (at = text.find(kName, at)) != std::string::npos; ++at) {
    const bool is_a_call = at == 0 || std::string_view("` \n(").find(text[at - 1]) != std::string_view::npos;
    if (!is_a_call) continue;
    const std::string_view rest = std::string_view(text).substr(at + kName.size());
    const std::string_view word = rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"));
    const bool has_command =
        std::ranges::any_of(commands, [&](const CLI::App *each) { return each->get_name() == word; });
    const std::string name = has_command ? program.get_name() : command_name();
    text.replace(at, kName.size() - 1, name);
    at += name.size();
  }
  return text;
}

std::string name_of(const CLI::App &app) {
  return app.get_parent() == nullptr ? app.get_name() : name_of(*app.get_parent()) + " " + app.get_name();
}

const CLI::App &root_of(const CLI::App &app) { return app.get_parent() == nullptr ? app : root_of(*app.get_parent()); }

// CLI11 gives the type and the descriptions of its validators: "UINT:SIZE", "TEXT:{serial,pthread}".
void read_type(const std::string &type, OptionText &option) {
  const std::size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  const std::string check = colon == std::string::npos ? "" : type.substr(colon + 1);
  option.argument = name == "UINT" || name == "INT" ? "N" : name == "FLOAT" ? "NUMBER" : name;
  if (check == "SIZE") option.argument = check;
  if (!check.starts_with('{') || !check.ends_with('}')) return;
  for (std::optional<std::string_view> rest = std::string_view(check).substr(1, check.size() - 2); rest;)
    option.values.emplace_back(base::cut(rest, ","));
  if (option.argument == "TEXT") option.argument = "WORD";
}

OptionText describe_option(const CLI::Option &option, const CLI::App &program) {
  OptionText text;
  text.by_position = option.get_positional();
  if (text.by_position) {
    text.names.push_back(option.get_name(true, false));
  } else {
    for (const std::string &name : option.get_snames()) text.names.push_back("-" + name);
    for (const std::string &name : option.get_lnames()) text.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() != 0) read_type(option.get_type_name(), text);
  text.group = option.get_group();
  text.help = with_name(option.get_description(), program);
  text.preset = option.get_default_str();
  if (text.preset.starts_with('[')) text.preset = text.preset.substr(1, text.preset.size() - 2);  // of a list
  text.is_required = option.get_required();
  text.is_argument_optional = option.get_items_expected_max() != 0 && option.get_expected_min() == 0;
  text.is_list = option.get_delimiter() == ',';
  text.is_repeatable = option.get_items_expected_max() > 1;
  for (const CLI::Option *each : option.get_needs()) text.needs.push_back(each->get_name());
  for (const CLI::Option *each : option.get_excludes()) text.excludes.push_back(each->get_name());
  std::ranges::sort(text.needs);  // CLI11 keeps them by address
  std::ranges::sort(text.excludes);
  return text;
}

}  // namespace

std::string CommandText::last_word() const { return name.substr(name.find_last_of(' ') + 1); }

CommandText describe(const CLI::App &app) {
  const CLI::App &program = root_of(app);
  CommandText text;
  text.name = name_of(app);
  text.summary = with_name(app.get_description(), program);
  text.footer = with_name(app.get_footer(), program);
  text.runs_a_command = app.get_prefix_command();
  text.needs_command = app.get_require_subcommand_min() != 0;
  for (const CLI::Option *option : app.get_options())
    if (!option->get_group().empty() && option != app.get_help_all_ptr())
      text.options.push_back(describe_option(*option, program));
  for (const CLI::App *each : app.get_subcommands({}))
    if (!each->get_group().empty()) text.commands.push_back(describe(*each));
  return text;
}

std::vector<std::string> groups_of(const CommandText &command) {
  std::vector<std::string> groups;
  for (const OptionText &option : command.options)
    if (!option.by_position && std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  std::stable_partition(groups.begin(), groups.end(), [](const std::string &group) { return group != kExpert; });
  return groups;
}

std::string usage(const CommandText &command) {
  std::string text = command.name;
  bool has_options = false;
  if (command.needs_command) return text + " COMMAND [ARGS...]";
  for (const OptionText &option : command.options) {
    if (!option.by_position) continue;
    const std::string name = option.names[0] + (option.is_repeatable ? "..." : "");
    text += option.is_required ? " " + name : " [" + name + "]";
  }
  for (const OptionText &option : command.options) {
    if (option.by_position) continue;
    if (option.is_required) text += fmt::format(" {} {}", option.names[0], option.argument);
    has_options = has_options || !option.is_required;
  }
  if (has_options) text += " [OPTIONS]";
  if (command.runs_a_command) text += " [--] COMMAND [ARGS...]";
  if (!command.commands.empty()) text += " [COMMAND]";
  return text;
}

std::string signature(const OptionText &option) {
  std::string text = fmt::format("{}", fmt::join(option.names, ", "));
  if (option.by_position) return text + (option.is_repeatable ? "..." : "");
  if (option.argument.empty()) return text;
  const bool is_bracketed = option.argument.starts_with('[');
  return text + (option.is_argument_optional && !is_bracketed ? " [" + option.argument + "]" : " " + option.argument);
}

std::string full_help(const OptionText &option) {
  std::string text = option.help;
  std::vector<std::string> notes;
  if (!option.values.empty())
    notes.push_back(fmt::format("{}: {}", option.is_list ? "of" : "one of", fmt::join(option.values, ", ")));
  if (!option.preset.empty()) notes.push_back("default: " + option.preset);
  if (option.is_required && !option.by_position) notes.emplace_back("required");
  std::vector<std::string> needs = option.needs;
  std::erase_if(needs, [&](const std::string &each) { return option.help.find(each) != std::string::npos; });
  if (!needs.empty()) notes.push_back(fmt::format("with {}", fmt::join(needs, " and ")));
  if (!option.excludes.empty()) notes.push_back(fmt::format("not with {}", fmt::join(option.excludes, ", ")));
  if (!notes.empty()) text += fmt::format(" ({})", fmt::join(notes, "; "));
  return text;
}

std::vector<Paragraph> paragraphs(const std::string &text) {
  std::vector<Paragraph> list;
  bool is_new = true;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      is_new = true;
      continue;
    }
    const bool is_preformatted = line.starts_with("  ");
    if (is_new || list.back().is_preformatted != is_preformatted) {
      list.push_back({{line}, is_preformatted});
    } else if (is_preformatted) {
      list.back().lines.push_back(line);
    } else {
      list.back().lines[0] += " " + line;
    }
    is_new = false;
  }
  return list;
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string list = fmt::format("{{{}}}", fmt::join(words, ","));
  return CLI::Validator(
      [words = std::move(words)](std::string &text) -> std::string {
        if (std::ranges::find(words, text) != words.end()) return "";
        return fmt::format("\"{}\" is none of {}{}", text, fmt::join(words, ", "), did_you_mean(text, words));
      },
      list);
}

CLI::Validator matrix_value(MatrixUse use) {
  std::vector<std::string> words;
  for (std::int32_t matrix = 0; const char *name = tandem_matrix_name(matrix); ++matrix) {
    const auto unfit = use == MatrixUse::sets ? TANDEM_MATRIX_HAS_LOCAL_GROUPS : TANDEM_MATRIX_IS_GF16;
    if ((tandem_matrix_traits(matrix) & unfit) == 0) words.emplace_back(name);
  }
  const std::string list = fmt::format("{{{}}}", fmt::join(words, ","));
  return CLI::Validator(
      [words = std::move(words)](std::string &text) -> std::string {
        std::int32_t matrix = 0;
        if (text.empty() || tandem_matrix_from_name(text.c_str(), &matrix) == TANDEM_OK) return "";
        return tandem_last_error_message() + did_you_mean(text, words);
      },
      list);
}

}  // namespace tandem::cli
