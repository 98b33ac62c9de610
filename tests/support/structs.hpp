// SPDX-License-Identifier: Apache-2.0
// The structs of the C API as calls take them. Uses only tandem.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/tandem.h"

namespace tandem::test {

// Zeros, and its size.
template <class Struct>
Struct sized() {
  Struct made = {};
  made.struct_bytes = sizeof made;
  return made;
}

inline tandem_codec_options codec_options(uint32_t k, uint32_t m, int32_t matrix = TANDEM_MATRIX_ISAL_CAUCHY) {
  auto options = sized<tandem_codec_options>();
  options.k = k;
  options.m = m;
  options.matrix = matrix;
  return options;
}

inline tandem_plan_arguments plan_arguments(void *const *shards, std::size_t shard_bytes) {
  auto arguments = sized<tandem_plan_arguments>();
  arguments.shards = shards;
  arguments.shard_bytes = shard_bytes;
  return arguments;
}

}  // namespace tandem::test
