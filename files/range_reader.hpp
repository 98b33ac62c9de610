// SPDX-License-Identifier: Apache-2.0
// Reads any bytes of a set's content, and computes damaged or missing bytes.
#pragma once

#include <cstdint>

#include "files/stripe_source.hpp"

namespace tandem::files {

class RangeReader {
 public:
  RangeReader(tandem_context *context, FoundSet set);

  const SetHeader &header() const { return set_.header; }
  // Content bytes offset .. offset + byte_count - 1. Any thread.
  void read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out);

 private:
  tandem_context *context_;
  const FoundSet set_;
  OwnedCodec codec_;
  StripeSource source_;
  SpareBuffers spare_buffers_;
};

}  // namespace tandem::files
