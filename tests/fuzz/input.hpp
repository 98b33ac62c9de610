// SPDX-License-Identifier: Apache-2.0
// A fuzzer's input, read piece by piece, and its verdict.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem::test {

[[noreturn]] inline void wrong(const char *what) {
  std::fprintf(stderr, "WRONG: %s\n", what);
  std::abort();
}

// Zeros after its end.
class FuzzInput {
 public:
  FuzzInput(const std::uint8_t *data, std::size_t size) : data_(data), end_(data + size) {}
  bool empty() const { return data_ == end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - data_); }
  std::uint8_t byte() { return data_ != end_ ? *data_++ : std::uint8_t{0}; }
  std::uint32_t below(std::uint32_t end) { return number<std::uint16_t>() % end; }

  template <class T>
  T number() {
    T value = 0;
    take(&value, sizeof value);
    return value;
  }

  void take(void *out, std::size_t count) {
    const std::size_t have = std::min(count, left());
    if (have != 0) std::memcpy(out, data_, have);
    if (have != count) std::memset(static_cast<std::uint8_t *>(out) + have, 0, count - have);
    data_ += have;
  }

 private:
  const std::uint8_t *data_, *end_;
};

}  // namespace tandem::test
