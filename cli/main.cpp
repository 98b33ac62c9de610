// The command `tandem`.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <new>

#include "cli/commands.hpp"

namespace {

using AddCommand = void (*)(CLI::App &, tandem::cli::Invocation &);

// In the order of --help.
constexpr AddCommand kCommands[] = {
    tandem::cli::add_encode_command,   tandem::cli::add_decode_command,   tandem::cli::add_verify_command,
    tandem::cli::add_repair_command,   tandem::cli::add_info_command,     tandem::cli::add_devices_command,
    tandem::cli::add_autotune_command, tandem::cli::add_bench_command,    tandem::cli::add_simulate_command,
    tandem::cli::add_volume_command,   tandem::cli::add_isal_env_command,
};

constexpr const char *kFooter =
    "Exit status: 0 done, 1 damage found but recoverable (verify, repair --dry-run, volume scrub), 2 wrong usage, 3 "
    "input or output "
    "failed,\n"
    "4 not recoverable, 130 interrupted.";

// `--` ends our own options, and may as well be a word of the command that is to be started; CLI11 cannot tell. What
// follows it is set aside. Returns how many of `argv` are left.
int set_words_after_dashes_aside(int argc, char **argv, tandem::cli::Invocation &invocation) {
  if (argc < 2 || argv[1] != std::string_view("isal-env")) return argc;
  char **const end = argv + argc;
  char **const dashes = std::find(argv + 2, end, std::string_view("--"));
  if (dashes != end) invocation.words_after_dashes.emplace(dashes + 1, end);
  return static_cast<int>(dashes - argv);
}

// Descriptors 0 to 2 that are closed would become those of the first files that are opened, and be written to as
// standard output. The other direction makes their use fail, as before; a command that is started gets none.
void open_standard_descriptors() {
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0)
      open("/dev/null", (descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

// Numbers are decimal: CLI11 reads 010 as 8, and lets -1 wrap around where it stands for a size.
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
  for (CLI::Option *option : command.get_options())
    if (option->get_type_name().starts_with("UINT")) option->transform(CLI::Validator(make_decimal, "", "decimal"));
  for (CLI::App *each : command.get_subcommands({})) read_numbers_in_decimal(*each);
}

int run(int argc, char **argv) {
  CLI::App app("Reed-Solomon erasure coding of files: split into k data and m parity shards, lose any m, get all back.",
               "tandem");
  app.set_version_flag("--version", tandem_version_string());
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(32);
  tandem::cli::Invocation invocation;
  for (const AddCommand add : kCommands) add(app, invocation);
  read_numbers_in_decimal(app);
  try {
    app.parse(set_words_after_dashes_aside(argc, argv, invocation), argv);
    return invocation.run();
  } catch (const CLI::ConversionError &error) {
    tandem::cli::complain(fmt::format("{} (not a number, or too large)", error.what()));
    return tandem::cli::kExitWrongUsage;
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    tandem::cli::complain(error.what());
    return tandem::cli::kExitWrongUsage;
  } catch (const tandem::cli::Failure &failure) {
    tandem::cli::complain(failure.message);
    return failure.exit_status;
  }
}

}  // namespace

int main(int argc, char **argv) {
  open_standard_descriptors();
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an I/O error with a message
  int status;
  try {
    status = run(argc, argv);
  } catch (const std::exception &error) {
    tandem::cli::complain(error.what());
    status = tandem::cli::kExitInputOutput;
  }
  // What was printed counts only if it arrived.
  if (std::fflush(stdout) != 0 && status == 0) {
    tandem::cli::complain("cannot write standard output");
    status = tandem::cli::kExitInputOutput;
  }
  return status == 0 && tandem::cli::standard_error_failed() ? tandem::cli::kExitInputOutput : status;
}
