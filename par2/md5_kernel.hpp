// SPDX-License-Identifier: Apache-2.0
// MD5 of many streams at once, for one instruction set.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tandem::par2 {

constexpr unsigned kMaxMd5Streams = 32;

struct Md5Kernel {
  const char *name;
  unsigned vector_words, groups;  // it takes vector_words * groups streams
  // Adds `blocks` blocks of 64 bytes to each stream. states: for each group the four words of the state, each of them
  // for all streams of the group.
  void (*run)(uint32_t *states, const unsigned char *const *data, size_t blocks);
};

}  // namespace tandem::par2
