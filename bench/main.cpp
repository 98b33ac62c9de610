// SPDX-License-Identifier: Apache-2.0
// The program tandem-bench: measurements, simulators and kernel texts. It is no part of the product.
#include "base/error.hpp"
#include "bench/commands.hpp"
#include "cli/program.hpp"

namespace tandem::bench {

int run_inside(const std::function<int()> &command) {
  try {
    return command();
  } catch (const base::Error &error) {
    throw cli::Failure{cli::exit_status_of(error.status()), error.what(), error.status()};
  }
}

}  // namespace tandem::bench

namespace {

constexpr const char *kName = "tandem-bench";
// In the order of --help.
constexpr tandem::cli::AddCommand kCommands[] = {
    tandem::bench::add_run_command,      tandem::bench::add_hybrid_command,  tandem::bench::add_batch_command,
    tandem::bench::add_simulate_command, tandem::bench::add_kernels_command, tandem::bench::add_techniques_command,
};

}  // namespace

int main(int argc, char **argv) {
  tandem::cli::prepare_process(kName, TANDEM_COMMAND_NAME);
  tandem::cli::Invocation invocation;
  const tandem::cli::Program program = {
      kName, "Measures and simulates erasure coding with Tandem, and shows the kernels that do it.", kCommands};
  return tandem::cli::end_program(tandem::cli::run_program(program, argc, argv, invocation, false));
}
