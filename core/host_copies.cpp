// SPDX-License-Identifier: Apache-2.0
#include "core/host_copies.hpp"

#include <cstring>

namespace tandem::core {

HostCopier::~HostCopier() = default;

void copy_here(std::span<const HostCopy> copies) noexcept {
  for (const HostCopy &copy : copies) {
    if (copy.bytes == 0) continue;  // memcpy takes no NULL
    if (!copy.adds) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      continue;
    }
    for (std::uint64_t i = 0; i < copy.bytes; ++i) copy.to[i] ^= copy.from[i];
  }
}

}  // namespace tandem::core
