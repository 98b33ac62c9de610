// SPDX-License-Identifier: Apache-2.0
// The command `tandem-mpi`: commands of `tandem`, run by all ranks of an MPI job.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdlib>

#include "cli/program.hpp"
#include "tandem/mpi.h"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

constexpr const char *kName = "tandem-mpi";
constexpr AddCommand kCommands[] = {add_encode_command, add_decode_command, add_verify_command, add_repair_command};

tandem_status status_of_exit(int exit_status) {
  switch (exit_status) {
    case kExitDone:
      return TANDEM_OK;
    case kExitWrongUsage:
      return TANDEM_ERROR_INVALID_ARGUMENT;
    case kExitInputOutput:
      return TANDEM_ERROR_IO;
    case kExitNotRecoverable:
      return TANDEM_ERROR_NOT_RECOVERABLE;
    default:
      return TANDEM_ERROR_CANCELLED;
  }
}

class AllRanks : public Ranks {
 public:
  AllRanks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    if (!leads()) be_silent();
    setenv("NO_COLOR", "1", 1);  // mpirun's terminal for a rank says nothing about where its output goes
    communicator_ = MPI_Comm_c2f(MPI_COMM_WORLD);
    check(tandem_mpi_thread_count(communicator_, &thread_count_));
  }

  bool leads() const override { return rank_ == 0; }
  void adapt(ContextFlags &flags) const override {
    const char *const variable = std::getenv("TANDEM_THREADS");
    const bool is_told = flags.thread_count != 0 || (variable != nullptr && *variable != 0);
    if (!is_told) flags.thread_count = thread_count_;
    if (!leads()) flags.timeline.clear();
    // The ranks of a node may share a mask: all would use its first cores.
    if (flags.pin) fail(kExitWrongUsage, "--pin: mpirun binds ranks to cores (--bind-to core)");
  }

  tandem_status encode(tandem_context *context, const tandem_files_encode_options &options,
                       tandem_files_result *result_out) override {
    if (const tandem_status status = agree(TANDEM_OK); status != TANDEM_OK) return status;
    return tandem_mpi_encode(communicator_, context, &options, result_out);
  }

  tandem_status decode(tandem_context *context, const std::vector<std::string> &paths,
                       const tandem_files_decode_options &options, tandem_files_result *result_out) override {
    if (const tandem_status status = agree(TANDEM_OK); status != TANDEM_OK) return status;
    const std::vector<const char *> list = pointers(paths);
    return tandem_mpi_decode(communicator_, context, list.data(), list.size(), &options, result_out);
  }

  tandem_status verify(tandem_context *context, const std::vector<std::string> &paths,
                       const tandem_files_verify_options &options, tandem_files_verify_result *result_out) override {
    if (const tandem_status status = agree(TANDEM_OK); status != TANDEM_OK) return status;
    const std::vector<const char *> list = pointers(paths);
    return tandem_mpi_verify(communicator_, context, list.data(), list.size(), &options, result_out);
  }

  tandem_status repair(tandem_context *context, const std::vector<std::string> &paths,
                       const tandem_files_repair_options &options, tandem_files_repair_result *result_out) override {
    if (const tandem_status status = agree(TANDEM_OK); status != TANDEM_OK) return status;
    const std::vector<const char *> list = pointers(paths);
    return tandem_mpi_repair(communicator_, context, list.data(), list.size(), &options, result_out);
  }

  // Ranks with other arguments would make other calls.
  void require_same_words(int argc, char **argv) const {
    std::string mine;
    for (int i = 1; i < argc; ++i) mine += fmt::format("{}{}", argv[i], '\0');
    unsigned long long length = mine.size();
    MPI_Bcast(&length, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    std::string leading = leads() ? mine : std::string(length, '\0');
    MPI_Bcast(leading.data(), static_cast<int>(length), MPI_CHAR, 0, MPI_COMM_WORLD);
    check(tandem_mpi_agree(communicator_, mine == leading
                                              ? TANDEM_OK
                                              : tandem_set_last_error(TANDEM_ERROR_INVALID_ARGUMENT,
                                                                      "its arguments are not those of rank 0")));
  }

  // How all ranks end. A rank that failed before its first collective call tells the others now.
  Ending agreed(const Ending &ending, int argc, char **argv) {
    if (met_) return ending;
    tandem_status status = status_of_exit(ending.exit_status);
    if (status != TANDEM_OK) tandem_set_last_error(status, ending.message.c_str());
    status = agree(status);
    if (status == TANDEM_OK || ending.exit_status != kExitDone) return ending;
    return failed_ending({exit_status_of(status), tandem_last_error_message(), status}, argc, argv);
  }

 private:
  tandem_status agree(tandem_status status) {
    met_ = true;
    return tandem_mpi_agree(communicator_, status);
  }

  int rank_ = 0;
  std::int32_t communicator_ = 0;
  std::uint32_t thread_count_ = 1;
  bool met_ = false;
};

Ending run(int argc, char **argv) {
  AllRanks ranks;
  Invocation invocation;
  invocation.ranks = &ranks;
  const Program program = {
      kName, "Shard sets by all ranks of an MPI job: mpirun -n 4 tandem-mpi encode FILE -k 10 -m 4 -o DIR", kCommands};
  ranks.require_same_words(argc, argv);
  return ranks.agreed(run_program(program, argc, argv, invocation, !ranks.leads()), argc, argv);
}

}  // namespace
}  // namespace tandem::cli

int main(int argc, char **argv) {
  using namespace tandem::cli;
  prepare_process(kName, TANDEM_COMMAND_NAME);
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  Ending ending = {kExitDone, ""};
  try {
    ending = run(argc, argv);
  } catch (const Failure &failure) {
    ending = failed_ending(failure, argc, argv);
  }
  const int status = end_program(ending);
  MPI_Finalize();
  return status;
}
