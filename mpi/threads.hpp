// SPDX-License-Identifier: Apache-2.0
// How the ranks of a node share its cores.
#pragma once

#include <cstdint>

#include "mpi/world.hpp"

namespace tandem::mpi {

// Collective. At least 1.
std::uint32_t thread_count(const World &world);

}  // namespace tandem::mpi
