// Reads any bytes of a set's content; computes what is damaged or missing.
#pragma once

#include <cstdint>

#include "files/stripe_source.hpp"

namespace tandem::files {

class RangeReader {
 public:
  RangeReader(tandem_context *context, FoundSet set, std::uint32_t thread_count);

  const SetHeader &header() const { return set_.header; }
  // Content bytes offset .. offset + byte_count - 1. Any thread.
  void read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out);

 private:
  tandem_context *context_;
  const FoundSet set_;
  std::uint32_t thread_count_;
  OwnedCodec codec_;
  StripeSource source_;
};

}  // namespace tandem::files
