// SPDX-License-Identifier: Apache-2.0
#include "mpi/calls.hpp"

#include <algorithm>
#include <vector>

#include "base/os.hpp"

namespace tandem::mpi {
namespace {

// One character for each core: '1' if this process may run there. "1" if that is unknown.
std::string own_cores() {
  const base::os::AffinityMask mask;
  std::string cores;
  for (unsigned core = 0; core < mask.end(); ++core) cores += mask.has(core) ? '1' : '0';
  return mask.end() != 0 ? cores.substr(0, cores.find_last_of('1') + 1) : "1";
}

}  // namespace

std::uint32_t thread_count(const World &world) {
  const World node = world.node();
  const std::vector<std::string> all = node.all_gather(own_cores());
  const std::string &mine = all[static_cast<std::size_t>(node.rank())];
  std::vector<std::uint64_t> users(mine.size(), 0);
  for (const std::string &cores : all)
    for (std::size_t core = 0; core < std::min(cores.size(), mine.size()); ++core) users[core] += cores[core] == '1';
  double parts = 0;
  for (std::size_t core = 0; core < mine.size(); ++core)
    if (mine[core] == '1') parts += 1.0 / static_cast<double>(users[core]);
  constexpr double kRounding = 1e-6;
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(parts + kRounding), 1);
}

}  // namespace tandem::mpi
