// SPDX-License-Identifier: Apache-2.0
// The owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace tandem::base {

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}  // negative: none, as after an open that failed
  ~Descriptor() {
    if (is_open()) close(number_);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;

  int get() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }

  // Writes all bytes, in as many calls as needed. If it returns false, errno has the reason, and a part may be written.
  bool write_all(const void *bytes, std::size_t count) const noexcept;

 private:
  const int number_;
};

}  // namespace tandem::base
