// SPDX-License-Identifier: Apache-2.0
// Replaces operators new and delete of the program and the library by operators that fail on request. One source file
// of a program includes this.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// How many more allocations succeed; negative = all. Counts on every thread, so the worker's allocations fail too.
std::atomic<long> allowed_allocations{-1};
std::atomic<long> failed_allocations{0};
std::atomic<long> live_allocations{0};

void *allocate(std::size_t bytes, std::size_t alignment) {
  long left = allowed_allocations.load();
  while (left >= 0) {
    if (left == 0) {
      failed_allocations.fetch_add(1);
      return nullptr;
    }
    if (allowed_allocations.compare_exchange_weak(left, left - 1)) break;
  }
  if (bytes == 0) bytes = 1;
  live_allocations.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void *allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void *memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Out of line: GCC takes an inlined free for the wrong partner of an operator new that it did not inline.
[[gnu::noinline]] static void release(void *memory) {
  if (memory != nullptr) live_allocations.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

void *operator new(std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void *operator new[](std::size_t bytes) { return allocate_or_throw(bytes, 1); }
void *operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept { return allocate(bytes, 1); }
void *operator new[](std::size_t bytes, const std::nothrow_t &) noexcept { return allocate(bytes, 1); }
void *operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void *memory) noexcept { release(memory); }
void operator delete[](void *memory) noexcept { release(memory); }
void operator delete(void *memory, std::size_t) noexcept { release(memory); }
void operator delete[](void *memory, std::size_t) noexcept { release(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void *memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void *memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }
void operator delete[](void *memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }
void operator delete(void *memory, const std::nothrow_t &) noexcept { release(memory); }
void operator delete[](void *memory, const std::nothrow_t &) noexcept { release(memory); }
