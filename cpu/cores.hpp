// SPDX-License-Identifier: Apache-2.0
// This machine's cores, as the operating system describes them.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::cpu {

// The smallest CPU quota, in cores and rounded up (at least 1), of this process' cgroups and all their visible
// ancestors; UINT64_MAX without one. Reads root + "/proc/self/cgroup", root + "/proc/self/mountinfo", and the folders
// below root that they name. root is "" except in tests. Any content of those files gives either a limit or none.
std::uint64_t cgroup_core_limit(const std::string &root);

// Threads that run or wait for a core now, on the whole machine: the fourth field of /proc/loadavg (proc(5)), or of
// another such file. 0 if it does not tell. Allocates nothing.
std::uint64_t runnable_thread_count(const char *loadavg_file) noexcept;

// Whether the calling thread's affinity mask has a core for each of thread_count threads, and the machine has at least
// as many cores as runnable threads. Throws nothing; takes some microseconds.
bool machine_has_room(unsigned thread_count) noexcept;

// From root + "/proc/cpuinfo": the model for people, "unknown CPU" if there is none; and the vendor, "" if there is
// none. 64-bit Arm has numbers there. If there are cores of several kinds, all kinds are named.
std::string cpu_model(const std::string &root);
std::string cpu_vendor(const std::string &root);

}  // namespace tandem::cpu
