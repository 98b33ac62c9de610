// SPDX-License-Identifier: Apache-2.0
// The commands of tandem-bench. What they share with the command `tandem` is that command's: cli/commands.hpp.
#pragma once

#include "cli/commands.hpp"

namespace tandem::bench {

void add_run_command(CLI::App &app, cli::Invocation &invocation);
void add_hybrid_command(CLI::App &app, cli::Invocation &invocation);
void add_batch_command(CLI::App &app, cli::Invocation &invocation);
void add_simulate_command(CLI::App &app, cli::Invocation &invocation);
void add_simulate_storage_command(CLI::App &simulate, cli::Invocation &invocation);  // a command of simulate
void add_kernels_command(CLI::App &app, cli::Invocation &invocation);
void add_techniques_command(CLI::App &app, cli::Invocation &invocation);

// Runs a command that calls the library's classes. Their errors end it as those of the C API do.
int run_inside(const std::function<int()> &command);

}  // namespace tandem::bench
