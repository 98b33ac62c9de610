// SPDX-License-Identifier: Apache-2.0
#include "base/affinity.hpp"

#include <cerrno>

#include "base/os.hpp"

namespace tandem::base {
#if defined(__linux__)

os::AffinityMask::AffinityMask() noexcept {
  // The kernel refuses (EINVAL) a mask shorter than its own, which may be longer than cpu_set_t's 1024
  // (sched_setaffinity(2)).
  for (unsigned cpu_count = CPU_SETSIZE; cpu_count <= (1u << 20); cpu_count *= 2) {
    mask_.reset(CPU_ALLOC(cpu_count));
    bytes_ = CPU_ALLOC_SIZE(cpu_count);
    if (mask_ == nullptr) return;
    CPU_ZERO_S(bytes_, mask_.get());
    if (sched_getaffinity(0, bytes_, mask_.get()) == 0) {
      end_ = cpu_count;
      return;
    }
    if (errno != EINVAL) return;
  }
}

void os::pin_thread(pthread_t thread, unsigned core) noexcept {
  cpu_set_t *mask = CPU_ALLOC(core + 1);
  if (mask == nullptr) return;
  const std::size_t mask_bytes = CPU_ALLOC_SIZE(core + 1);
  CPU_ZERO_S(mask_bytes, mask);
  CPU_SET_S(core, mask_bytes, mask);
  pthread_setaffinity_np(thread, mask_bytes, mask);
  CPU_FREE(mask);
}

#endif

std::vector<unsigned> affinity_cores() {
  const os::AffinityMask mask;
  std::vector<unsigned> cores;
  for (unsigned core = 0; core < mask.end(); ++core)
    if (mask.has(core)) cores.push_back(core);
  return cores;
}

}  // namespace tandem::base
