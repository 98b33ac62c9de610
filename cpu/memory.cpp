// SPDX-License-Identifier: Apache-2.0
#include "cpu/memory.hpp"

#include "base/rounding.hpp"

namespace tandem::cpu {
namespace {

// Scratch memory of one thread, kept until it ends. Memory that a thread takes after its thread_local objects are gone
// leaks.
class Arena {
 public:
  ~Arena() { ::operator delete (memory_, std::align_val_t{kCacheLine}); }

  std::byte *get(std::size_t bytes) noexcept {
    if (bytes <= bytes_) return memory_;
    constexpr std::size_t kStep = 64 << 10;
    const std::size_t rounded = base::round_up(bytes, kStep);
    void *const larger = ::operator new (rounded, std::align_val_t{kCacheLine}, std::nothrow);
    if (larger == nullptr) return nullptr;
    ::operator delete (memory_, std::align_val_t{kCacheLine});
    memory_ = static_cast<std::byte *>(larger);
    bytes_ = rounded;
    return memory_;
  }

 private:
  std::byte *memory_ = nullptr;
  std::size_t bytes_ = 0;
};

thread_local Arena arena;

}  // namespace

std::byte *thread_scratch(std::size_t bytes) noexcept { return arena.get(bytes); }

}  // namespace tandem::cpu
