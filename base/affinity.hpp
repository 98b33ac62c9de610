// SPDX-License-Identifier: Apache-2.0
// The cores that a thread may run on.
#pragma once

#include <span>
#include <vector>

struct tandem_context;

namespace tandem::base {

// Cores of the calling thread's mask; empty if the kernel does not tell.
std::vector<unsigned> affinity_cores();

// The cores that threads of functions on files are pinned to in turn; empty: they are not pinned. For NULL it may make
// the process's own context, and throws if it cannot. api/, which knows contexts, sets this when the library is loaded.
using CoresForWorkers = std::span<const unsigned> (*)(const tandem_context *context);
inline constinit CoresForWorkers cores_for_workers = [](const tandem_context *) { return std::span<const unsigned>(); };

}  // namespace tandem::base
