// SPDX-License-Identifier: Apache-2.0
// Completions for bash and zsh. Both know the commands, the options and the words that an option takes; the shell
// completes file names itself.
#include <fmt/format.h>

#include <algorithm>

#include "cli/pages.hpp"

namespace tandem::cli {
namespace {

// One word of a shell, in single quotes.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char each : text) result += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return result + "'";
}

std::string function_name(const CommandText &program) {
  std::string name = "_" + program.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

template <class Visit>
void for_each_command(const CommandText &command, Visit visit) {
  visit(command);
  for (const CommandText &each : command.commands) for_each_command(each, visit);
}

std::string command_names(const CommandText &command) {
  std::string names;
  for (const CommandText &each : command.commands) names += (names.empty() ? "" : " ") + each.last_word();
  return names;
}

// Of a `case` of bash: "--size|-k".
std::string pattern(const OptionText &option) { return fmt::format("{}", fmt::join(option.names, "|")); }

// The arms of bash's `case` for one command.
std::string bash_arm(const CommandText &command) {
  std::string names, takes_value, words;
  for (const OptionText &option : command.options) {
    if (option.by_position) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(option.names, " "));
    if (option.argument.empty() || option.is_argument_optional) continue;
    takes_value += (takes_value.empty() ? "" : "|") + pattern(option);
    if (!option.values.empty())
      words += fmt::format("      {}) words={}; list={} ;;\n", pattern(option),
                           quoted(fmt::format("{}", fmt::join(option.values, " "))), option.is_list ? 1 : 0);
  }
  return fmt::format("  {})\n    commands={}\n    options={}\n{}{}    ;;\n", quoted(command.name),
                     quoted(command_names(command)), quoted(names),
                     words.empty() ? "" : "    case $2 in\n" + words + "    esac\n",
                     takes_value.empty() ? "" : "    case $2 in " + takes_value + ") takes_value=1 ;; esac\n");
}

// In arguments of _describe and _arguments a colon ends a field.
std::string colons_escaped(std::string_view text) {
  std::string result;
  for (const char each : text) result += each == ':' ? std::string("\\:") : std::string(1, each);
  return result;
}

// "encode:Split a file..." of _describe.
std::string described(std::string_view name, std::string_view help) {
  return quoted(colons_escaped(name) + ":" + std::string(help));
}

// An argument of zsh's _arguments: '(-k --data)'{-k,--data}'[Data shards]:N: '.
std::string zsh_option(const OptionText &option) {
  std::string help;
  for (const char each : option.help) {
    if (each == '[' || each == ']' || each == ':' || each == '\\') help += '\\';
    help += each;
  }
  std::string action;
  if (!option.argument.empty()) {
    std::string argument;
    for (const char each : option.argument)
      if (each != '[' && each != ']' && each != ':') argument += each;
    const std::string words = colons_escaped(fmt::format("{}", fmt::join(option.values, " ")));
    const bool is_file = option.argument.starts_with("FILE") || option.argument == "PATH";
    const std::string what = !option.values.empty()
                                 ? (option.is_list ? "_values -s , word " + words : "(" + words + ")")
                             : option.argument == "FOLDER" ? "_files -/"
                             : is_file                     ? "_files"
                                                           : " ";  // the shell cannot know
    action = fmt::format("{}{}:{}", option.is_argument_optional ? "::" : ":", argument, what);
  }
  const std::string rest = "[" + help + "]" + action;
  const std::string excluded = option.is_repeatable ? "*" : fmt::format("({})", fmt::join(option.names, " "));
  if (option.names.size() == 1) return quoted(excluded + option.names[0] + rest);
  return fmt::format("{}{{{}}}{}", quoted(excluded), fmt::join(option.names, ","), quoted(rest));
}

}  // namespace

std::string bash_completion(const CommandText &program) {
  std::string arms;
  for_each_command(program, [&](const CommandText &each) { arms += bash_arm(each); });
  const std::string function = function_name(program);
  return fmt::format(
      R"(# bash completion for {program}. Made from the command's own table of options (cli/completion.cpp). DO NOT EDIT

# {function}_table COMMAND OPTION: sets commands, options, words, list and takes_value.
{function}_table() {{
  commands='' options='' words='' list=0 takes_value=0
  case $1 in
{arms}  esac
}}

{function}() {{
  local commands options words list takes_value
  local command={program} i word before='' is_help=0 current split='' last=''
  local -a line=()
  COMPREPLY=()
  # bash splits a word at its colons: cuda:0 is 3 words. They are joined again.
  for word in "${{COMP_WORDS[@]:0:COMP_CWORD+1}}"; do
    if ((${{#line[@]}} > 1)) && [[ $word == : || $last == : ]]; then
      line[-1]+=$word
      split=${{line[-1]%"${{line[-1]##*:}}"}}
    else
      line+=("$word")
      split=''
    fi
    last=$word
  done
  current=${{line[-1]}}
  # Find the command that is named so far. The value of an option is not a command.
  for ((i = 1; i < ${{#line[@]}} - 1; ++i)); do
    word=${{line[i]}}
    {function}_table "$command" "$before"
    if [[ $i == 1 && $word == help ]]; then
      is_help=1
    elif ((takes_value)); then
      [[ $word == = ]] || before=''
    elif [[ $word == -?* ]]; then
      before=$word
    elif [[ " $commands " == *" $word "* ]]; then
      command+=" $word"
    fi
  done
  [[ $current != = ]] || current=''
  {function}_table "$command" "$before"
  if ((is_help)); then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  elif ((takes_value)); then
    if [[ -n $words ]]; then
      local head=''
      if ((list)) && [[ $current == *,* ]]; then head=${{current%,*}},; fi
      mapfile -t COMPREPLY < <(compgen -P "$head" -W "$words" -- "${{current#"$head"}}")
    fi  # else names of files, by `complete -o default`
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
  COMPREPLY=("${{COMPREPLY[@]#"$split"}}")  # bash replaces only what stands after the last colon
}}

complete -o default -F {function} {program}
)",
      fmt::arg("program", program.name), fmt::arg("function", function), fmt::arg("arms", arms));
}

std::string zsh_completion(const CommandText &program) {
  const std::string function = function_name(program);
  std::string functions;
  for_each_command(program, [&](const CommandText &command) {
    std::string name = function + command.name.substr(program.name.size());
    std::ranges::replace(name, ' ', '_');
    functions += fmt::format("{}() {{\n", name);
    const bool has_commands = !command.commands.empty();
    if (has_commands) functions += "  local curcontext=$curcontext state line\n  local -a commands\n";
    functions += fmt::format("  _arguments {}-s -S", has_commands ? "-C " : "");
    for (const OptionText &option : command.options)
      if (!option.by_position) functions += " \\\n    " + zsh_option(option);
    if (has_commands) {
      functions += " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n      commands=(";
      for (const CommandText &each : command.commands)
        functions += "\n        " + described(each.last_word(), each.summary);
      functions += ")\n      _describe command commands\n      ;;\n    rest)\n";
      functions += fmt::format("      (( $+functions[{0}_$line[1]] )) && {0}_$line[1]\n      ;;\n  esac\n", name);
    } else if (command.runs_a_command) {
      functions += " \\\n    '*::command: _normal'\n";
    } else if (command.last_word() == "help") {
      functions += fmt::format(" \\\n    '*: :({})'\n", command_names(program));
    } else {
      functions += " \\\n    '*: :_files'\n";
    }
    functions += "}\n\n";
  });
  return fmt::format(
      "#compdef {0}\n# Made from the command's own table of options (cli/completion.cpp). DO NOT EDIT\n\n{2}{1} "
      "\"$@\"\n",
      program.name, function, functions);
}

}  // namespace tandem::cli
