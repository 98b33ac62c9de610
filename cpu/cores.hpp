// What the operating system says of this machine's cores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cpu {

// Cores of the calling thread's affinity mask; empty if the kernel does not tell.
std::vector<unsigned> affinity_cores();

// The smallest CPU quota, in cores and rounded up (at least 1), of this process' cgroups and all their ancestors that
// are visible; UINT64_MAX without one. Reads root + "/proc/self/cgroup", root + "/proc/self/mountinfo", and below root
// the folders that they name. root is "" but in tests. Whatever those files hold, the answer is a limit or none.
std::uint64_t cgroup_core_limit(const std::string &root);

// Threads that run or wait for a core now, on the whole machine: the fourth field of /proc/loadavg (proc(5)), or of
// another such file. 0 if it does not tell. Allocates nothing.
std::uint64_t runnable_thread_count(const char *loadavg_file) noexcept;

// Whether the calling thread's affinity mask has a core for each of thread_count threads, and no more threads are
// runnable than the machine has cores. Throws nothing; takes some microseconds.
bool machine_has_room(unsigned thread_count) noexcept;

// Of `cores`, those of each NUMA node, nodes without any left out; all of them as one where the system does not tell.
// Reads below root + "/sys/devices/system/node".
std::vector<std::vector<unsigned>> cores_by_node(const std::string &root, const std::vector<unsigned> &cores);

// Of root + "/proc/cpuinfo": the model for people, "unknown CPU" if it does not tell; and the vendor, "" if it does
// not. 64-bit Arm has numbers there. Cores of several kinds are all named.
std::string cpu_model(const std::string &root);
std::string cpu_vendor(const std::string &root);

}  // namespace tandem::cpu
