// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "base/io_error.hpp"

namespace tandem::base {

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void random_bytes(std::span<std::uint8_t> bytes_out) {
  while (!bytes_out.empty()) {
    const ssize_t got = getrandom(bytes_out.data(), bytes_out.size(), 0);
    if (got < 0 && errno != EINTR) fail_io("read", "random bytes", errno);
    if (got > 0) bytes_out = bytes_out.subspan(static_cast<std::size_t>(got));
  }
}

std::string random_hexadecimal(std::size_t byte_count) {
  std::vector<std::uint8_t> bytes(byte_count);
  random_bytes(bytes);
  return hexadecimal(bytes);
}

}  // namespace tandem::base
