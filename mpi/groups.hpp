// SPDX-License-Identifier: Apache-2.0
// The groups of ranks that protect each other, and the exchanges in a group.
#pragma once

#include <cstdint>

#include "mpi/exchange.hpp"
#include "mpi/world.hpp"

namespace tandem::mpi {

// The group and member number of each rank.
struct Groups {
  std::uint32_t count = 0, group = 0, member = 0;  // the last two: of this rank
  std::uint32_t most_on_a_node = 0;
};

// Collective. The ranks, in the order of their nodes, are distributed over the groups in turn. So of c ranks on a node
// no group gets more than c / count, rounded up. group_size divides the number of ranks.
Groups make_groups(const World &world, const World &node, std::uint32_t group_size);

// The exchanges of one group of ranks: all its stripes. Groups work at the same time.
Exchange exchange_of_group(const Layout &layout, std::int32_t matrix, std::uint64_t piece_bytes,
                           std::uint64_t segment_bytes, std::uint32_t member, Held *held);

}  // namespace tandem::mpi
