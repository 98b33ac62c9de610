// SPDX-License-Identifier: Apache-2.0
// tandem_mpi_verify and tandem_mpi_repair: the calls of files.h with all ranks as their team.
#pragma once

#include <cstddef>

#include "mpi/world.hpp"
#include "tandem/files.h"

namespace tandem::mpi {

// Collective.
tandem_files_verify_result verify(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_verify_options *given);
tandem_files_repair_result repair(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_repair_options *given);

}  // namespace tandem::mpi
