// The groups in which ranks protect each other, and what a group exchanges.
#pragma once

#include <cstdint>

#include "mpi/exchange.hpp"
#include "mpi/world.hpp"

namespace tandem::mpi {

// Which rank is which member of which group.
struct Groups {
  std::uint32_t count = 0, group = 0, member = 0;  // the last two: of this rank
  std::uint32_t most_on_a_node = 0;
};

// Collective. The ranks in the order of their nodes are dealt out to the groups like cards: of c ranks on a node no
// group gets more than c / count, rounded up. group_size divides the number of ranks.
Groups make_groups(const World &world, const World &node, std::uint32_t group_size);

// Of one group alone, whose ranks are its members: all its stripes. Groups work side by side.
Exchange exchange_of_group(const Layout &layout, std::int32_t matrix, std::uint64_t piece_bytes,
                           std::uint64_t segment_bytes, std::uint32_t member, Held *held);

}  // namespace tandem::mpi
