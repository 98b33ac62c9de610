// SPDX-License-Identifier: Apache-2.0
// Long pieces of a CRC-32, for one width of carry-less products.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tandem::par2 {

constexpr uint32_t kCrcPolynomial = 0xedb88320;  // bit 31 is x^0

struct CrcKernel {
  const char *name;
  size_t block_bytes;
  // Of at least one block: 16 bytes that leave the same CRC, begun with 0, as the blocks, begun with `value`.
  void (*fold)(uint32_t value, const unsigned char *bytes, size_t blocks, unsigned char (&folded_out)[16]);
};

}  // namespace tandem::par2
