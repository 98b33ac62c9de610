// SPDX-License-Identifier: Apache-2.0
// UTF-8, as table 3-7 of the Unicode Standard 15.0 defines it.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::base {

struct Utf8Sequence {
  std::size_t length;  // if not valid: of the bytes that one U+FFFD replaces
  bool is_valid;
};

// The first character of a text that is not empty.
constexpr Utf8Sequence first_utf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xc2 || first > 0xf4) return {1, false};
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) < least || byte(i) > most) return {i, false};
    least = 0x80;
    most = 0xbf;
  }
  return {length, true};
}

}  // namespace tandem::base
