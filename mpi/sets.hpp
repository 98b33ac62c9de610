// SPDX-License-Identifier: Apache-2.0
// tandem_mpi_encode, decode, verify and repair: the calls of files.h with all ranks as their team.
#pragma once

#include <cstddef>

#include "mpi/world.hpp"
#include "tandem/mpi.h"

namespace tandem::mpi {

struct Outcome {
  tandem_files_result files;
  tandem_mpi_work work;
};

// Collective. An option that one rank may not give is refused on all.
Outcome encode(const World &world, tandem_context *context, const tandem_files_encode_options *given);
Outcome decode(const World &world, tandem_context *context, const char *const *paths, std::size_t path_count,
               const tandem_files_decode_options *given);
tandem_files_verify_result verify(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_verify_options *given);
tandem_files_repair_result repair(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_repair_options *given);

}  // namespace tandem::mpi
