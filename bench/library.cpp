// SPDX-License-Identifier: Apache-2.0
#include "bench/library.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace tandem::bench {

void refuse(const std::string &message) { throw EngineFailure(TANDEM_ERROR_INVALID_ARGUMENT, message); }

void fail(tandem_status status) { throw EngineFailure(status, tandem_last_error_message()); }

ContextOwner make_context(const tandem_context_options &options) {
  tandem_context *context = nullptr;
  check(tandem_context_create(&options, &context));
  return ContextOwner(context);
}

tandem_context_info query(const ContextOwner &context) {
  tandem_context_info info = {};
  info.struct_bytes = sizeof info;
  check(tandem_context_query(context.get(), &info));
  return info;
}

CodecOwner make_codec(unsigned k, unsigned m, std::int32_t matrix, const PacketLayout &packets) {
  tandem_codec_options options{};
  options.struct_bytes = sizeof options;
  options.k = k;
  options.m = m;
  options.matrix = matrix;
  options.allow_non_mds = matrix == TANDEM_MATRIX_PAR2;  // PAR2 sets are measured as they are
  if (packets.packet_bytes != 0) {
    options.layout = TANDEM_LAYOUT_PACKETS;
    options.word_bits = packets.word_bits;
    options.packet_bytes = packets.packet_bytes;
    if (packets.word_bits == 16) options.field = TANDEM_FIELD_GF16;
  }
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return CodecOwner(codec);
}

std::vector<std::uint8_t> parity_rows(const tandem_codec *codec, unsigned k, unsigned m) {
  std::vector<std::uint8_t> rows(std::size_t{2} * m * k);  // GF(2^16): two bytes for each element; no peer reads them
  check(tandem_codec_coefficients(codec, rows.data(), rows.size()));
  return rows;
}

}  // namespace tandem::bench
