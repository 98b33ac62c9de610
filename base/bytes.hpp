// SPDX-License-Identifier: Apache-2.0
// Bytes: little-endian numbers, hexadecimal digits, random bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tandem::base {

static_assert(std::endian::native == std::endian::little, "files and members of volumes are little-endian");

template <class Number>
void store(std::byte *at, Number value) {
  std::memcpy(at, &value, sizeof value);
}

template <class Number>
Number load(const std::byte *at) {
  Number value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Two lower-case digits for each byte.
std::string hexadecimal(std::span<const std::uint8_t> bytes);

// Reads what hexadecimal() writes; false: it is another text.
bool parse_hexadecimal(std::string_view text, std::span<std::uint8_t> bytes_out);

// From the operating system. Throws Error (IO).
void random_bytes(std::span<std::uint8_t> bytes_out);
template <class Number>
Number random_number() {
  std::uint8_t bytes[sizeof(Number)];
  random_bytes(bytes);
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}
std::string random_hexadecimal(std::size_t byte_count);

}  // namespace tandem::base
