// SPDX-License-Identifier: Apache-2.0
// Tandem as the engine calls it: contexts and codecs with an owner, and failures as exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/engine.hpp"
#include "tandem/tandem.h"

namespace tandem::bench {

[[noreturn]] void refuse(const std::string &message);  // an impossible request

// Throws EngineFailure with the library's message, unless the status is TANDEM_OK. Inline: a call would show in the
// figures of the smallest shards.
[[noreturn]] void fail(tandem_status status);
inline void check(tandem_status status) {
  if (status != TANDEM_OK) [[unlikely]]
    fail(status);
}

struct Destroy {
  void operator()(tandem_context *context) const noexcept { tandem_context_destroy(context); }
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
};
using ContextOwner = std::unique_ptr<tandem_context, Destroy>;
using CodecOwner = std::unique_ptr<tandem_codec, Destroy>;

ContextOwner make_context(const tandem_context_options &options);
tandem_context_info query(const ContextOwner &context);

// packet_bytes 0: elements are bytes.
struct PacketLayout {
  std::uint32_t word_bits = 0;
  std::uint64_t packet_bytes = 0;
};
CodecOwner make_codec(unsigned k, unsigned m, std::int32_t matrix, const PacketLayout &packets = {});
std::vector<std::uint8_t> parity_rows(const tandem_codec *codec, unsigned k, unsigned m);  // m x k

}  // namespace tandem::bench
