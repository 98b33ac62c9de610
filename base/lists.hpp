// SPDX-License-Identifier: Apache-2.0
// Lists of structs for the caller, and texts of fixed size in them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace tandem::base {

template <std::size_t kBytes>
void copy_text(char (&out)[kBytes], const std::string &text) {
  const std::size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = 0;
}

// Writes the first `capacity` structs, stride_bytes apart.
template <class Struct>
void write_list(const std::vector<Struct> &list, Struct *out, std::size_t capacity, std::size_t stride_bytes,
                std::size_t *count_out) {
  if (count_out == nullptr || (out == nullptr && capacity != 0))
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "a pointer argument is NULL");
  if (capacity != 0 && stride_bytes < sizeof(Struct)) {
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "stride_bytes is " + std::to_string(stride_bytes) +
                                                  ", smaller than the struct: " + std::to_string(sizeof(Struct)));
  }
  for (std::size_t i = 0; i < std::min(capacity, list.size()); ++i)
    std::memcpy(reinterpret_cast<char *>(out) + i * stride_bytes, &list[i], sizeof(Struct));
  *count_out = list.size();
}

}  // namespace tandem::base
