// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/io_error.hpp"

namespace tandem::base {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool parse_hexadecimal(std::string_view text, std::span<std::uint8_t> bytes_out) {
  if (text.size() != 2 * bytes_out.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return false;
    bytes_out[i / 2] = static_cast<std::uint8_t>(i % 2 == 0 ? digit << 4 : bytes_out[i / 2] | digit);
  }
  return true;
}

void random_bytes(std::span<std::uint8_t> bytes_out) {
  while (!bytes_out.empty()) {
    const std::size_t byte_count = std::min<std::size_t>(bytes_out.size(), 256);  // POSIX: no more at once
    if (getentropy(bytes_out.data(), byte_count) != 0) fail_io("read", "random bytes", errno);
    bytes_out = bytes_out.subspan(byte_count);
  }
}

std::string random_hexadecimal(std::size_t byte_count) {
  std::vector<std::uint8_t> bytes(byte_count);
  random_bytes(bytes);
  return hexadecimal(bytes);
}

}  // namespace tandem::base
