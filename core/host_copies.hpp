// SPDX-License-Identifier: Apache-2.0
// Copies between shards of a caller and staging memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::core {

// to = from; or to ^= from if `adds` is set. The two do not overlap.
struct HostCopy {
  std::byte *to;
  const std::byte *from;
  std::uint64_t bytes;
  bool adds = false;
};

class HostCopier {
 public:
  virtual ~HostCopier();
  // Returns when all copies are done. A device may read the result then. Thread-safe. Throws Error as Budget::acquire
  // does; some copies have happened then.
  virtual void run(std::span<const HostCopy> copies) = 0;
};

// On the calling thread.
void copy_here(std::span<const HostCopy> copies) noexcept;

}  // namespace tandem::core
