// SPDX-License-Identifier: Apache-2.0
// CRC-32 (IEEE 802.3, reflected, as zlib's): of bytes, of bytes and zeros after them, and of a window that moves by one
// byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "par2/crc_kernel.hpp"

namespace tandem::par2 {

// Continues a CRC; 0 begins one.
std::uint32_t crc32(std::uint32_t crc, const void *bytes, std::size_t count);
std::uint32_t crc32_zeros(std::uint32_t crc, std::uint64_t count);

// For tests. Those of this CPU, the widest first; a wide one leaves short rests to the next.
std::span<const CrcKernel *const> crc_kernels();
void force_crc_kernels(std::span<const CrcKernel *const> kernels);

// The CRC of `window` bytes, without the inversions at both ends: so that it is linear.
class RollingCrc {
 public:
  explicit RollingCrc(std::uint64_t window);
  // The linear part of a CRC of `window` bytes.
  std::uint32_t linear(std::uint32_t crc) const { return crc ^ inverted_; }
  // One byte enters, the byte `window` places before it leaves.
  std::uint32_t roll(std::uint32_t linear, std::uint8_t in, std::uint8_t out) const {
    return steps_[(linear ^ in) & 0xff] ^ (linear >> 8) ^ leaving_[out];
  }

 private:
  const std::array<std::uint32_t, 256> &steps_;
  std::array<std::uint32_t, 256> leaving_;
  std::uint32_t inverted_;
};

}  // namespace tandem::par2
