// SPDX-License-Identifier: Apache-2.0
// Reads any bytes of a set's content, and computes damaged or missing bytes.
#pragma once

#include <cstdint>
#include <span>

#include "files/outcome.hpp"
#include "files/stripe_source.hpp"
#include "files/written_stripes.hpp"

namespace tandem::files {

class RangeReader {
 public:
  RangeReader(tandem_context *context, FoundSet set, std::uint32_t thread_count);

  const SetHeader &header() const { return set_.header; }
  // Content bytes offset .. offset + byte_count - 1. Any thread.
  void read(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out);

  // The functions of files.h.
  void read_stripes(std::uint64_t first_stripe, std::uint64_t stripe_count, std::span<std::byte> content_out,
                    std::byte *hashes_out);
  void add(std::uint64_t first_stripe, std::uint64_t stripe_count, std::span<const std::byte> hashes);
  void check_whole() const;
  Outcome outcome();

 private:
  // hashes_out: of the data payloads of the stripes that have these bytes, or NULL.
  void read_range(std::uint64_t offset, std::uint64_t byte_count, std::byte *content_out, std::byte *hashes_out);

  tandem_context *context_;
  const FoundSet set_;
  std::uint32_t thread_count_;
  OwnedCodec codec_;
  StripeSource source_;
  SpareBuffers spare_buffers_;
  WrittenStripes known_;  // stripes with known hashes
};

}  // namespace tandem::files
