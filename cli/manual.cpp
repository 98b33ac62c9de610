// SPDX-License-Identifier: Apache-2.0
// Manual pages in the macros of man(7).
#include <fmt/format.h>

#include <algorithm>

#include "cli/pages.hpp"

namespace tandem::cli {
namespace {

constexpr std::pair<const char *, std::string_view> kExamples[] = {
    {"Split a file into 10 data and 4 parity shards", "encode film.mkv -k 10 -m 4 -o shards"},
    {"Look for damage", "verify shards"},
    {"Mend damaged shards, and rebuild lost ones", "repair shards"},
    {"Put the file together from any 10 shards", "decode shards -o film.mkv"},
    {"Ask how likely 14 disks lose data", "durability --disks 14 --afr 1.5% --rebuild 24h"},
};

constexpr const char *kVariables =
    "TANDEM_BACKEND, TANDEM_KERNEL, TANDEM_THREADS, TANDEM_RESOURCES, TANDEM_POLICY, TANDEM_TIMELINE, "
    "TANDEM_TUNING and TANDEM_EXPERT stand for options that are not given. TANDEM_CHECK_DEVICES has no option. "
    "docs/environment.md of the sources describes them.";

// Characters that mean something to troff. `Words in backquotes` are bold.
std::string text(std::string_view plain) {
  using Escaped = std::pair<char, const char *>;
  constexpr Escaped kEscaped[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
  std::string result;
  bool is_bold = false;
  for (const char each : plain) {
    const auto *const escaped = std::ranges::find(kEscaped, each, &Escaped::first);
    if (escaped != std::end(kEscaped)) {
      result += escaped->second;
    } else if (each != '`') {
      result += each;
    } else {
      is_bold = !is_bold;
      result += is_bold ? "\\fB" : "\\fR";
    }
  }
  return result;
}

// A separate line. A point at its start would be a request to troff.
std::string line(std::string_view plain) { return (plain.starts_with('.') ? "\\&" : "") + text(plain) + "\n"; }

std::string upper(std::string_view plain) {
  std::string result(plain);
  for (char &each : result)
    if (each >= 'a' && each <= 'z') each = static_cast<char>(each - 'a' + 'A');
  return result;
}

std::string heading(std::string_view title) { return fmt::format(".SH {}\n", upper(title)); }

std::string flowing(const std::string &plain) {
  std::string page;
  for (const Paragraph &each : paragraphs(plain)) {
    page += ".PP\n";
    if (each.is_preformatted) page += ".nf\n";
    for (const std::string &one : each.lines) page += line(one);
    if (each.is_preformatted) page += ".fi\n";
  }
  return page;
}

std::string page_name(const CommandText &command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string title(const std::string &name, const std::string &version, const std::string &summary) {
  return fmt::format(
      ".\\\" Made from the command's own table of options (cli/manual.cpp). DO NOT EDIT\n"
      ".TH {} 1 \"\" \"Tandem {}\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n",
      text(upper(name)), text(version), text(name), text(summary));
}

std::string option_list(const CommandText &command, const std::string &group) {
  std::string page;
  for (const OptionText &option : command.options) {
    if (option.by_position || option.group != group) continue;
    page += ".TP\n";
    std::string names;
    for (const std::string &name : option.names) names += (names.empty() ? "\\fB" : ", \\fB") + text(name) + "\\fR";
    if (!option.argument.empty())
      names += option.is_argument_optional && !option.argument.starts_with('[')
                   ? fmt::format(" [\\fI{}\\fR]", text(option.argument))
                   : fmt::format(" \\fI{}\\fR", text(option.argument));
    page += names + "\n" + line(full_help(option));
  }
  return page;
}

// Arguments, options and footer of one command; `section` begins each part.
std::string body(const CommandText &command, std::string (*section)(std::string_view)) {
  std::string page, arguments;
  for (const OptionText &option : command.options)
    if (option.by_position)
      arguments += fmt::format(".TP\n\\fI{}\\fR\n{}", text(signature(option)), line(full_help(option)));
  if (!arguments.empty()) page += section("Arguments") + arguments;
  for (const std::string &group : groups_of(command))
    page += section(group == kExpert ? "Expert options" : group) + option_list(command, group);
  constexpr std::string_view kExit = "Exit status: ";  // commands without a footer of their own have this one
  if (command.footer.starts_with(kExit))
    page += section("Exit status") + flowing(command.footer.substr(kExit.size()));
  else if (!command.footer.empty())
    page += section("Notes") + flowing(command.footer);
  return page;
}

std::string minor_heading(std::string_view title) { return fmt::format(".PP\n\\fB{}\\fR\n", text(title)); }

std::string synopsis(const CommandText &command) {
  return fmt::format("\\fB{}\\fR{}\n", text(command.name), text(usage(command).substr(command.name.size())));
}

// A command below another one, with those below it.
std::string nested(const CommandText &command, const CommandText &parent) {
  std::string page =
      fmt::format(".SS {}\n{}.PP\n{}", text(command.name), synopsis(command), line(command.summary + "."));
  CommandText own = command;
  if (own.footer == parent.footer) own.footer.clear();  // CLI11 hands it down
  page += body(own, minor_heading);
  for (const CommandText &each : command.commands) page += nested(each, command);
  return page;
}

// Those of commands that the program has.
std::string examples(const CommandText &program) {
  std::string page;
  for (const auto &[what, arguments] : kExamples) {
    const std::string_view command = arguments.substr(0, arguments.find(' '));
    if (std::ranges::find(program.commands, command, &CommandText::last_word) != program.commands.end())
      page += fmt::format(".TP\n{}.nf\n{}.fi\n", line(what), line(fmt::format("{} {}", program.name, arguments)));
  }
  return page.empty() ? "" : heading("Examples") + page;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> manual_pages(const CommandText &program, const std::string &version) {
  std::vector<std::pair<std::string, std::string>> pages;
  std::string all = title(program.name, version, program.summary.substr(0, program.summary.find('.')));
  all += heading("Synopsis") + synopsis(program) + heading("Description") + line(program.summary);
  all += heading("Commands");
  for (const CommandText &each : program.commands)
    all += fmt::format(".TP\n\\fB{}\\fR\n{}", text(each.last_word()), line(each.summary));
  all += fmt::format(".PP\nEach but \\fBhelp\\fR has a page of its own, such as \\fB{}\\fR(1).\n",
                     text(page_name(program.commands.front())));
  all += body(program, heading);
  all += heading("Environment") + line(kVariables) + examples(program);
  all += heading("See also") + "\\fBlibtandem\\fR(3)";
  for (const CommandText &each : program.commands) {
    if (each.last_word() == "help") continue;
    all += fmt::format(", \\fB{}\\fR(1)", text(page_name(each)));
    std::string page = title(page_name(each), version, each.summary);
    page += heading("Synopsis") + synopsis(each);
    page += body(each, heading);
    if (!each.commands.empty()) page += heading("Commands");
    for (const CommandText &below : each.commands) page += nested(below, each);
    page += heading("See also") + fmt::format("\\fB{}\\fR(1)\n", text(program.name));
    pages.emplace_back(page_name(each) + ".1", std::move(page));
  }
  pages.emplace_back(program.name + ".1", all + "\n");
  return pages;
}

}  // namespace tandem::cli
