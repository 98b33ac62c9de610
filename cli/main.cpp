// SPDX-License-Identifier: Apache-2.0
// The command `tandem`.
#include "cli/program.hpp"

#ifdef TANDEM_CLI_HAS_PAR2
#include "cli/par2.hpp"
#endif

namespace {

using namespace tandem::cli;

// In the order of --help.
constexpr AddCommand kCommands[] = {
    add_encode_command,     add_decode_command,   add_verify_command,  add_repair_command,
    add_resize_command,     add_info_command,     add_devices_command, add_autotune_command,
#ifdef TANDEM_CLI_HAS_VOLUME
    add_volume_command,
#endif
#ifdef TANDEM_CLI_HAS_PAR2
    add_par2_command,
#endif
    add_durability_command, add_isal_env_command,
};

}  // namespace

int main(int argc, char **argv) {
#ifdef TANDEM_CLI_HAS_PAR2
  if (const auto status = run_as_par2(argc, argv)) return *status;
#endif
  prepare_process(TANDEM_COMMAND_NAME, TANDEM_COMMAND_NAME);
  Invocation invocation;
  const Program program = {TANDEM_COMMAND_NAME,
                           "Reed-Solomon erasure coding: splits a file into k data shards and adds m parity shards. "
                           "Any k of them give the file back.",
                           kCommands};
  return end_program(run_program(program, argc, argv, invocation, false));
}
