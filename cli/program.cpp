// SPDX-License-Identifier: Apache-2.0
#include "cli/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/help.hpp"

namespace tandem::cli {
namespace {

constexpr const char *kFooter =
    "Exit status: 0 done, 1 something needs attention (recoverable damage, missing redundancy, a change that\n"
    "waits for a flag), 2 wrong usage, 3 input or output failed, 4 not recoverable, 130 interrupted.";

// If one of descriptors 0 to 2 is closed, the first opened file would get its number, and output would go to that file.
// Opens /dev/null in the other direction, so that using the descriptor still fails. A started command does not get it.
void open_standard_descriptors() {
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0)
      open("/dev/null", (descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

// Numbers are decimal. CLI11 alone would read 010 as 8 and turn -1 into a huge number.
std::string make_decimal(std::string &text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  if (end == 0 || std::string_view("xX").find(text.c_str()[end]) != std::string_view::npos)
    return fmt::format("{} is not a whole number in decimal digits", text);
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + end, value).ec != std::errc())
    return fmt::format("{} is too large a number", text);
  text.erase(0, std::min(text.find_first_not_of('0'), end - 1));
  return "";
}

void read_numbers_in_decimal(CLI::App &command) {
  const auto is_number = [](const std::string &type) {
    return type.starts_with("UINT") && type.find(":SIZE") == std::string::npos;  // bytes_of checks these
  };
  for (CLI::Option *option : command.get_options())
    if (is_number(option->get_type_name())) option->transform(CLI::Validator(make_decimal, "", "decimal"));
  for (CLI::App *each : command.get_subcommands({})) read_numbers_in_decimal(*each);
}

void add_help_command(CLI::App &app, Invocation &invocation, bool quiet) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App *command = app.add_subcommand("help", "Print the help of a command");
  command->add_option("COMMAND", *words, "The command, such as encode or volume create; default: the program");
  command->callback([&app, &invocation, words, quiet] {
    invocation.run = [&app, words, quiet] {
      CommandText found = describe(app);
      for (const std::string &word : *words) {
        const auto next = std::ranges::find(found.commands, word, &CommandText::last_word);
        if (next == found.commands.end()) fail(kExitWrongUsage, no_such_command(found, {word}));
        found = CommandText(*next);
      }
      if (!quiet) fmt::print("{}", help_text(found, HelpOf::usual_options, help_columns()));
      return kExitDone;
    };
  });
}

// The words of a command line.
struct Words {
  std::vector<std::string> words;
  bool has_json = false;  // --json is among its options: a failure is told as JSON, also one to parse the words
};

// Finds options as CLI11 will: not among values of options, words after `--`, and words of another program. CLI11 takes
// the word after `--name=` for its value, so the empty value gets a word of its own. It would give the words after `--`
// to the program, so a `--` before another program is left out. Without an app no option has a value.
Words read_words(const CLI::App *app, int argc, char **argv) {
  Words read;
  bool may_be_option = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    const bool precedes_program = may_be_option && word == "--" && app != nullptr && app->get_prefix_command();
    may_be_option = may_be_option && word != "--";
    if (precedes_program && i + 1 < argc && *argv[i + 1] != '-') continue;
    read.words.push_back(word);
    if (!may_be_option) continue;
    if (!word.starts_with('-')) {
      if (app == nullptr) continue;
      may_be_option = !app->get_prefix_command();
      for (const CLI::App *each : app->get_subcommands({}))
        if (each->get_name() == word) app = each;
      continue;
    }
    read.has_json = read.has_json || word == "--json";
    const CLI::Option *option = app != nullptr ? app->get_option_no_throw(name) : nullptr;
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    if (word == name && i + 1 < argc) read.words.emplace_back(argv[++i]);
    if (word == name + "=" && name.starts_with("--")) {
      read.words.back() = name;
      read.words.emplace_back();
    }
  }
  return read;
}

// The JSON of a command that failed: its name, its files and the reason.
std::string failure_text(const CLI::App &app, const Failure &failure) {
  Json object = Json::object();
  std::string name;  // "volume create"
  for (const CLI::App *command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += (name.empty() ? "" : " ") + command->get_name();
    object["command"] = name;
    if (const CLI::Option *file = command->get_option_no_throw("FILE"); file != nullptr && file->count() != 0)
      object["source"] = file->results().front();
    if (const CLI::Option *paths = command->get_option_no_throw("PATH"); paths != nullptr && paths->count() != 0)
      object["paths"] = paths->results();
  }
  object.update(failure_object(failure));
  return json_text(std::move(object));
}

Ending run(const Program &program, int argc, char **argv, Invocation &invocation, bool quiet) {
  CLI::App app(program.description, program.name);
  use_help_text(app);
  app.set_help_flag("-h,--help", "Print this help");
  app.set_help_all_flag("--help-all", "The same with the options for experts");
  app.set_version_flag(
      "-V,--version", [&] { return version_text(program.name, invocation.ranks == nullptr); },
      "Print the version, the build, the CPU kernel and the backends");
  app.require_subcommand(1);
  app.footer(kFooter);
  for (const AddCommand add : program.commands) add(app, invocation);
  add_help_command(app, invocation, quiet);
  read_numbers_in_decimal(app);
  auto [words, has_json] = read_words(&app, argc, argv);
  const auto failed = [&app, wants_json = has_json](const Failure &failure) -> Ending {
    const bool is_told = wants_json && !json_was_printed();
    return {failure.exit_status, failure.message, is_told ? failure_text(app, failure) : ""};
  };
  try {
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(words);
    return {invocation.run(), ""};
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) return {quiet ? 0 : app.exit(error), ""};  // --help, --version
    return failed({kExitWrongUsage, sentence_of(error, app)});
  } catch (const Failure &failure) {
    return failed(failure);
  } catch (const std::exception &error) {
    return failed({kExitInputOutput, error.what()});
  }
}

}  // namespace

void prepare_process(const char *program, const char *command) {
  set_names(program, command);
  open_standard_descriptors();
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an I/O error with a message
}

Ending run_program(const Program &program, int argc, char **argv, Invocation &invocation, bool quiet) {
  try {
    return run(program, argc, argv, invocation, quiet);
  } catch (const std::exception &error) {
    return {kExitInputOutput, error.what()};
  }
}

Ending failed_ending(const Failure &failure, int argc, char **argv) {
  const bool is_told = read_words(nullptr, argc, argv).has_json && !json_was_printed();
  return {failure.exit_status, failure.message, is_told ? json_text(failure_object(failure)) : ""};
}

int end_program(const Ending &ending) {
  int status = ending.exit_status;
  if (!ending.message.empty()) complain(ending.message);
  if (!is_silent()) std::fwrite(ending.json.data(), 1, ending.json.size(), stdout);  // never throws
  // Output that was not written is a failure.
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed || std::ferror(stdout) != 0) {
    if (ending.message.empty() || !ending.json.empty()) complain("cannot write standard output");
    status = std::max<int>(status, kExitInputOutput);
  }
  if (timeline_failed()) status = std::max<int>(status, kExitInputOutput);
  return status == 0 && standard_error_failed() ? kExitInputOutput : status;
}

}  // namespace tandem::cli
