// SPDX-License-Identifier: Apache-2.0
#include "mpi/groups.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tandem::mpi {

Groups make_groups(const World &world, const World &node, std::uint32_t group_size) {
  const std::uint64_t node_number = node.least(static_cast<std::uint64_t>(world.rank()));
  const std::vector<std::vector<std::uint64_t>> all = world.all_gather(std::vector{node_number});
  std::vector<std::pair<std::uint64_t, std::size_t>> order;  // node, rank
  for (std::size_t rank = 0; rank < all.size(); ++rank) order.emplace_back(all[rank][0], rank);
  std::ranges::sort(order);
  Groups groups;
  groups.count = static_cast<std::uint32_t>(order.size() / group_size);
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> together;  // by group and node: ranks
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto group = static_cast<std::uint32_t>(i % groups.count);
    const auto [node_of, rank] = order[i];
    groups.most_on_a_node = std::max(groups.most_on_a_node, ++together[{group, node_of}]);
    if (rank != static_cast<std::size_t>(world.rank())) continue;
    groups.group = group;
    groups.member = static_cast<std::uint32_t>(i / groups.count);
  }
  return groups;
}

Exchange exchange_of_group(const Layout &layout, std::int32_t matrix, std::uint64_t piece_bytes,
                           std::uint64_t segment_bytes, std::uint32_t member, Held *held) {
  Exchange exchange{layout, matrix, piece_bytes, {segment_bytes}, std::vector<std::vector<int>>(1), {}, {}};
  for (std::uint32_t i = 0; i < layout.size(); ++i) exchange.hosts[0].push_back(static_cast<int>(i));
  exchange.held[{0u, member}] = held;
  for (std::uint32_t stripe = 0; stripe < layout.size(); ++stripe) {
    StripeTask task{0, stripe, static_cast<int>(stripe), {}, {}};  // the rank of its first parity
    for (std::uint32_t each = 0; each < layout.size(); ++each)
      (layout.has_parity(each, stripe) ? task.outputs : task.inputs).push_back(each);
    exchange.tasks.push_back(std::move(task));
  }
  return exchange;
}

}  // namespace tandem::mpi
