// SPDX-License-Identifier: Apache-2.0
// The calls of files.h, after c_api.cpp has read their options. Of a result they fill everything but struct_bytes.
#pragma once

#include <cstring>

#include "files/search.hpp"
#include "tandem/files.h"

namespace tandem::files {

tandem_files_result encode(tandem_context *context, const tandem_files_encode_options &options);
tandem_files_result decode(tandem_context *context, const Search &search, const tandem_files_decode_options &options);
tandem_files_repair_result repair(tandem_context *context, const Search &search,
                                  const tandem_files_repair_options &options);
tandem_files_repair_result resize(tandem_context *context, const Search &search, std::uint32_t m,
                                  const tandem_files_repair_options &options);

// A tandem_files_set or tandem_files_result with what both say about a set.
template <class Struct>
Struct description_of(const SetHeader &set, bool any_k_suffice) {
  Struct out = {};
  const auto digest = printed_order(set.digest);
  std::memcpy(out.set_id, set.set_id.data(), set.set_id.size());
  std::memcpy(out.digest, digest.data(), digest.size());
  out.k = set.k;
  out.m = set.m;
  out.matrix = set.matrix;
  out.block_bytes = set.block_bytes;
  out.content_bytes = set.content_bytes;
  out.stripe_count = set.stripe_count();
  out.any_k_suffice = any_k_suffice ? 1 : 0;
  return out;
}

}  // namespace tandem::files
