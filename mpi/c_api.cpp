// SPDX-License-Identifier: Apache-2.0
// extern "C" of mpi.h.
#include "mpi/calls.hpp"
#include "mpi/world.hpp"
#include "tandem/mpi.h"

using namespace tandem::mpi;

namespace {

// Runs body(world) with all ranks, and writes what it returns. The caller's struct is checked before.
template <class Result, class Body>
tandem_status call(std::int32_t communicator, Result *result_out, const char *name, const Body &body) {
  return guarded([&] {
    const World world(communicator);
    world.together([&] { check_result(result_out, name); });
    write_result(body(world), result_out, name);
  });
}

}  // namespace

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
                                const tandem_files_encode_options *options, tandem_files_result *result_out) {
  return call(communicator, result_out, "tandem_files_result",
              [&](const World &world) { return encode(world, context, options); });
}

tandem_status tandem_mpi_decode(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_decode_options *options,
                                tandem_files_result *result_out) {
  return call(communicator, result_out, "tandem_files_result",
              [&](const World &world) { return decode(world, context, paths, path_count, options); });
}

tandem_status tandem_mpi_verify(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_verify_options *options,
                                tandem_files_verify_result *result_out) {
  return call(communicator, result_out, "tandem_files_verify_result",
              [&](const World &world) { return verify(world, context, paths, path_count, options); });
}

tandem_status tandem_mpi_repair(int32_t communicator, tandem_context *context, const char *const *paths,
                                size_t path_count, const tandem_files_repair_options *options,
                                tandem_files_repair_result *result_out) {
  return call(communicator, result_out, "tandem_files_repair_result",
              [&](const World &world) { return repair(world, context, paths, path_count, options); });
}

tandem_status tandem_mpi_protect(int32_t communicator, tandem_context *context,
                                 const tandem_mpi_protect_options *options, tandem_mpi_protect_result *result_out) {
  return call(communicator, result_out, "tandem_mpi_protect_result",
              [&](const World &world) { return protect(world, context, options); });
}

tandem_status tandem_mpi_recover(int32_t communicator, tandem_context *context,
                                 const tandem_mpi_recover_options *options, tandem_mpi_recover_result *result_out) {
  return call(communicator, result_out, "tandem_mpi_recover_result",
              [&](const World &world) { return recover(world, context, options); });
}

}  // extern "C"
