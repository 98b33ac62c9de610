// SPDX-License-Identifier: Apache-2.0
// The calls of mpi.h. All are collective. They take options as the caller gave them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi/world.hpp"
#include "tandem/mpi.h"

namespace tandem::mpi {

// How many threads a rank of a node has, so that all ranks share its cores. At least 1.
std::uint32_t thread_count(const World &world);

// The calls of files.h with all ranks as their team. An option that one rank may not give is refused on all.
tandem_files_result encode(const World &world, tandem_context *context, const tandem_files_encode_options *given);
tandem_files_result decode(const World &world, tandem_context *context, const char *const *paths,
                           std::size_t path_count, const tandem_files_decode_options *given);
tandem_files_verify_result verify(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_verify_options *given);
tandem_files_repair_result repair(const World &world, tandem_context *context, const char *const *paths,
                                  std::size_t path_count, const tandem_files_repair_options *given);

// Makes parity of the ranks' files, and recovers from it.
tandem_mpi_protect_result protect(const World &world, tandem_context *context,
                                  const tandem_mpi_protect_options *options);
tandem_mpi_recover_result recover(const World &world, tandem_context *context,
                                  const tandem_mpi_recover_options *options);

}  // namespace tandem::mpi
