// The command `tandem`.
#include <fmt/format.h>
#include <signal.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <new>

#include "cli/commands.hpp"

namespace {

using AddCommand = void (*)(CLI::App &, tandem::cli::Invocation &);

// In the order of --help.
constexpr AddCommand kCommands[] = {
    tandem::cli::add_encode_command,   tandem::cli::add_decode_command, tandem::cli::add_verify_command,
    tandem::cli::add_repair_command,   tandem::cli::add_info_command,   tandem::cli::add_devices_command,
    tandem::cli::add_autotune_command, tandem::cli::add_bench_command,  tandem::cli::add_simulate_command,
    tandem::cli::add_isal_env_command,
};

constexpr const char *kFooter =
    "Exit status: 0 done, 1 damage found but recoverable (verify, repair --dry-run), 2 wrong usage, 3 input or output "
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

int run(int argc, char **argv) {
  CLI::App app("Reed-Solomon erasure coding of files: split into k data and m parity shards, lose any m, get all back.",
               "tandem");
  app.set_version_flag("--version", tandem_version_string());
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(32);
  tandem::cli::Invocation invocation;
  for (const AddCommand add : kCommands) add(app, invocation);
  try {
    app.parse(set_words_after_dashes_aside(argc, argv, invocation), argv);
    return invocation.run();
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "tandem: {}\n", error.what());
    return tandem::cli::kExitWrongUsage;
  } catch (const tandem::cli::Failure &failure) {
    fmt::print(stderr, "tandem: {}\n", failure.message);
    return failure.exit_status;
  }
}

}  // namespace

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an I/O error with a message
  int status;
  try {
    status = run(argc, argv);
  } catch (const std::exception &error) {
    fmt::print(stderr, "tandem: {}\n", error.what());
    status = tandem::cli::kExitInputOutput;
  }
  // What was printed counts only if it arrived.
  if (std::fflush(stdout) != 0 && status == 0) {
    fmt::print(stderr, "tandem: cannot write standard output\n");
    status = tandem::cli::kExitInputOutput;
  }
  return status;
}
