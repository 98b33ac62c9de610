// SPDX-License-Identifier: Apache-2.0
// Encode and decode of shard sets by all ranks.
#pragma once

#include <string>
#include <vector>

#include "mpi/world.hpp"
#include "tandem/mpi.h"

namespace tandem::mpi {

struct Outcome {
  tandem_files_result files;
  tandem_mpi_work work;
};

// Collective. Both take options as the caller gave them. An option that one rank may not give is refused on all.
Outcome encode(const World &world, tandem_context *context, const tandem_files_encode_options *options);
Outcome decode(const World &world, tandem_context *context, const char *const *paths, std::size_t path_count,
               const tandem_files_decode_options *options);

}  // namespace tandem::mpi
