// SPDX-License-Identifier: Apache-2.0
// Memory with an inaccessible page on both sides: an access one byte too far ends the test at that instruction.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace tandem::test {

class Guarded {
 public:
  enum class Against { front, back };  // which end of the bytes lies exactly at the forbidden page

  explicit Guarded(std::size_t bytes, Against against = Against::back) {
    const std::size_t page = page_bytes();
    const std::size_t room = (bytes + page - 1) / page * page;
    mapped_bytes_ = room + 2 * page;
    void *mapped = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::uint8_t *>(mapped);
    if (room != 0 && mprotect(base_ + page, room, PROT_READ | PROT_WRITE) != 0) {
      munmap(base_, mapped_bytes_);
      throw std::bad_alloc();
    }
    room_ = base_ + page;
    room_bytes_ = room;
    data_ = against == Against::front ? room_ : room_ + room - bytes;
  }
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, mapped_bytes_);
  }
  Guarded(Guarded &&other) noexcept
      : base_(other.base_),
        room_(other.room_),
        data_(other.data_),
        mapped_bytes_(other.mapped_bytes_),
        room_bytes_(other.room_bytes_) {
    other.base_ = nullptr;
  }
  Guarded(const Guarded &) = delete;
  Guarded &operator=(const Guarded &) = delete;

  std::uint8_t *data() const { return data_; }

  // From now on the bytes can be read, and a write ends the test.
  void make_read_only() { mprotect(room_, room_bytes_, PROT_READ); }

  static std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

 private:
  std::uint8_t *base_, *room_, *data_;
  std::size_t mapped_bytes_, room_bytes_;
};

}  // namespace tandem::test
