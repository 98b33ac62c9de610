// SPDX-License-Identifier: Apache-2.0
// What the programs `tandem` and `tandem-mpi` have in common: from arguments to an exit status.
#pragma once

#include <span>
#include <string>

#include "cli/commands.hpp"

namespace tandem::cli {

using AddCommand = void (*)(CLI::App &, Invocation &);

struct Program {
  const char *name, *description;
  std::span<const AddCommand> commands;  // in the order of --help
};

// How a run ended: the exit status, and the sentence for standard error if there is one.
struct Ending {
  int exit_status;
  std::string message;
  std::string json = "";  // for standard output: --json on failure
};

// What --version prints: version, build, kernel, backends. with_backends: asks the drivers of devices.
std::string version_text(const std::string &program, bool with_backends);
// Before anything is opened or printed. The names are those of set_names.
void prepare_process(const char *program, const char *command);
// Parses, and runs the command that was named. Prints --help and --version unless quiet.
Ending run_program(const Program &program, int argc, char **argv, Invocation &invocation, bool quiet);
// For a failure outside the command that was named. With --json it has the JSON, without the command's name and files.
Ending failed_ending(const Failure &failure, int argc, char **argv);
// Prints the message and the JSON, and checks that all output was written. Returns the exit status.
int end_program(const Ending &ending);

}  // namespace tandem::cli
