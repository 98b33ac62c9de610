// SPDX-License-Identifier: Apache-2.0
// extern "C" of mpi.h.
#include "mpi/error.hpp"
#include "mpi/protect.hpp"
#include "mpi/sets.hpp"
#include "mpi/structs.hpp"
#include "mpi/threads.hpp"
#include "mpi/world.hpp"
#include "tandem/mpi.h"

using namespace tandem::mpi;

extern "C" {

tandem_status tandem_mpi_agree(int32_t communicator, tandem_status status) {
  const std::string why = status != TANDEM_OK ? tandem_last_error_message() : "";
  return guarded([&] {
    const World world(communicator);
    world.together([&] {
      if (status != TANDEM_OK) fail(status, why);
    });
  });
}

tandem_status tandem_mpi_thread_count(int32_t communicator, uint32_t *thread_count_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] {
      if (thread_count_out == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "thread_count_out is NULL");
    });
    *thread_count_out = thread_count(world);
  });
}

tandem_status tandem_mpi_encode(int32_t communicator, tandem_context *context,
                                const tandem_files_encode_options *options, tandem_files_result *result_out,
                                tandem_mpi_work *work_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] {
      check_result(result_out, "tandem_files_result");
      check_result(work_out, "tandem_mpi_work");
    });
    const Outcome outcome = encode(world, context, options);
    write_result(outcome.files, result_out, "tandem_files_result");
    write_result(outcome.work, work_out, "tandem_mpi_work");
  });
}

tandem_status tandem_mpi_decode(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_decode_options *options,
                                tandem_files_result *result_out, tandem_mpi_work *work_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] {
      check_result(result_out, "tandem_files_result");
      check_result(work_out, "tandem_mpi_work");
    });
    const Outcome outcome = decode(world, context, paths, path_count, options);
    write_result(outcome.files, result_out, "tandem_files_result");
    write_result(outcome.work, work_out, "tandem_mpi_work");
  });
}

tandem_status tandem_mpi_verify(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_verify_options *options,
                                tandem_files_verify_result *result_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] { check_result(result_out, "tandem_files_verify_result"); });
    write_result(verify(world, context, paths, path_count, options), result_out, "tandem_files_verify_result");
  });
}

tandem_status tandem_mpi_repair(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_repair_options *options,
                                tandem_files_repair_result *result_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] { check_result(result_out, "tandem_files_repair_result"); });
    write_result(repair(world, context, paths, path_count, options), result_out, "tandem_files_repair_result");
  });
}

tandem_status tandem_mpi_protect(int32_t communicator, tandem_context *context,
                                 const tandem_mpi_protect_options *options, tandem_mpi_protect_result *result_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] { check_result(result_out, "tandem_mpi_protect_result"); });
    write_result(protect(world, context, options), result_out, "tandem_mpi_protect_result");
  });
}

tandem_status tandem_mpi_recover(int32_t communicator, tandem_context *context,
                                 const tandem_mpi_recover_options *options, tandem_mpi_recover_result *result_out) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] { check_result(result_out, "tandem_mpi_recover_result"); });
    write_result(recover(world, context, options), result_out, "tandem_mpi_recover_result");
  });
}

}  // extern "C"
