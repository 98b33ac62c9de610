// SPDX-License-Identifier: Apache-2.0
#include "mpi/threads.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace tandem::mpi {
namespace {

// One character for each core: '1' if this process may run there. "1" if that is unknown.
std::string own_cores() {
  for (std::size_t count = 1024; count <= (std::size_t{1} << 20);
       count *= 2) {  // machines with more cores than CPU_SETSIZE
    cpu_set_t *const set = CPU_ALLOC(count);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    const int failed = sched_getaffinity(0, bytes, set) != 0 ? errno : 0;
    std::string cores;
    for (std::size_t core = 0; failed == 0 && core < count; ++core) cores += CPU_ISSET_S(core, bytes, set) ? '1' : '0';
    CPU_FREE(set);
    if (failed == 0) return cores.substr(0, cores.find_last_of('1') + 1);
    if (failed != EINVAL) break;
  }
  return "1";
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
