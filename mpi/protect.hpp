// SPDX-License-Identifier: Apache-2.0
// Makes parity of the ranks' files, and recovers from it.
#pragma once

#include "mpi/world.hpp"
#include "tandem/mpi.h"

namespace tandem::mpi {

// Collective. Both take options as the caller gave them.
tandem_mpi_protect_result protect(const World &world, tandem_context *context,
                                  const tandem_mpi_protect_options *options);
tandem_mpi_recover_result recover(const World &world, tandem_context *context,
                                  const tandem_mpi_recover_options *options);

}  // namespace tandem::mpi
