// SPDX-License-Identifier: Apache-2.0
// The cores that a thread may run on.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

struct tandem_context;

namespace tandem::base {

// The affinity mask of the calling thread; empty if the kernel does not tell.
class AffinityMask {
 public:
  AffinityMask() noexcept;
  unsigned end() const noexcept { return end_; }
  bool has(unsigned core) const noexcept { return CPU_ISSET_S(core, bytes_, mask_.get()); }
  unsigned count() const noexcept { return end_ != 0 ? static_cast<unsigned>(CPU_COUNT_S(bytes_, mask_.get())) : 0; }

 private:
  struct Free {
    void operator()(cpu_set_t *mask) const { CPU_FREE(mask); }
  };
  std::unique_ptr<cpu_set_t, Free> mask_;
  std::size_t bytes_ = 0;
  unsigned end_ = 0;
};

// Cores of the calling thread's mask; empty if the kernel does not tell.
std::vector<unsigned> affinity_cores();

// If the core has gone meanwhile, the thread stays where it may run, which is only slower.
void pin_thread(pthread_t thread, unsigned core) noexcept;

// The cores that threads of functions on files are pinned to in turn; empty: they are not pinned. For NULL it may make
// the process's own context, and throws if it cannot. api/, which knows contexts, sets this when the library is loaded.
using CoresForWorkers = std::span<const unsigned> (*)(const tandem_context *context);
inline constinit CoresForWorkers cores_for_workers = [](const tandem_context *) { return std::span<const unsigned>(); };

}  // namespace tandem::base
