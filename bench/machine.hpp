// SPDX-License-Identifier: Apache-2.0
// The properties of the machine that a figure depends on.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::bench {

struct MachineFacts {
  std::string cpu;                            // model name
  unsigned core_count;                        // online
  std::size_t l1d_bytes, l2_bytes, l3_bytes;  // 0: the system does not tell
  std::string system;                         // "Linux 6.1.0"
  std::string huge_pages;                     // the transparent huge page policy: "madvise"
  double load;                                // runnable tasks, one-minute average, before the run
};

MachineFacts this_machine();
std::string utc_now();  // "2025-01-31T12:00:00Z"

}  // namespace tandem::bench
