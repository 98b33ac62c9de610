// SPDX-License-Identifier: Apache-2.0
// The completion of bash, which zsh loads too. It knows the commands, the options and the words that an option takes;
// the shell completes file names itself. Some names, such as `commands`, `options` and `words`, are zsh's own.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/pages.hpp"

namespace tandem::cli {
namespace {

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
      words += fmt::format("      {}) choices={}; list={} ;;\n", pattern(option),
                           shell_word(fmt::format("{}", fmt::join(option.values, " "))), option.is_list ? 1 : 0);
  }
  return fmt::format("  {})\n    below={}\n    flags={}\n{}{}    ;;\n", shell_word(command.name),
                     shell_word(command_names(command)), shell_word(names),
                     words.empty() ? "" : "    case $2 in\n" + words + "    esac\n",
                     takes_value.empty() ? "" : "    case $2 in " + takes_value + ") takes_value=1 ;; esac\n");
}

}  // namespace

std::string bash_completion(const CommandText &program) {
  std::string arms;
  for_each_command(program, [&](const CommandText &each) { arms += bash_arm(each); });
  const std::string function = function_name(program);
  return fmt::format(
      R"(# bash completion for {program}. Made from the command's own table of options (cli/completion.cpp). DO NOT EDIT

# {function}_table COMMAND OPTION: sets below (its commands), flags, choices, list and takes_value.
{function}_table() {{
  below='' flags='' choices='' list=0 takes_value=0
  case $1 in
{arms}  esac
}}

# Under `set -e` an offer of nothing is no failure.
{function}_offer() {{ COMPREPLY=($(compgen "$@" || :)); }}

{function}() {{
  local below flags choices list takes_value
  local command={program} i word before='' is_help=0 current split='' last=''
  local -a line=()
  COMPREPLY=()
  # bash splits a word at its colons: cuda:0 is 3 words. They are joined again.
  for word in "${{COMP_WORDS[@]:0:$((COMP_CWORD + 1))}}"; do
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
    elif [[ " $below " == *" $word "* ]]; then
      command+=" $word"
    fi
  done
  [[ $current != = ]] || current=''
  {function}_table "$command" "$before"
  if ((is_help)); then
    {function}_offer -W "$below" -- "$current"
  elif ((takes_value)); then
    if [[ -n $choices ]]; then
      local head=''
      if ((list)) && [[ $current == *,* ]]; then head=${{current%,*}},; fi
      {function}_offer -P "$head" -W "$choices" -- "${{current#"$head"}}"
    fi  # else names of files, by `complete -o default`
  elif [[ $current == -* ]]; then
    {function}_offer -W "$flags" -- "$current"
  elif [[ -n $below ]]; then
    {function}_offer -W "$below" -- "$current"
  fi
  COMPREPLY=("${{COMPREPLY[@]#"$split"}}")  # bash replaces only what stands after the last colon
}}

complete -o default -F {function} {program}
)",
      fmt::arg("program", program.name), fmt::arg("function", function), fmt::arg("arms", arms));
}

std::string zsh_completion(const CommandText &program) {
  return fmt::format("#compdef {0}\nautoload -U +X bashcompinit && bashcompinit\n{1}_bash_complete -o default -F {2}\n",
                     program.name, bash_completion(program), function_name(program));
}

}  // namespace tandem::cli
