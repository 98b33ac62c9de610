// SPDX-License-Identifier: Apache-2.0
#include "api/call_array.hpp"

#include <new>
#include <utility>

#include "base/thread_key.hpp"

namespace tandem::api {
namespace {

// In front of each block's bytes.
struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) Header {
  Header *next;
  std::size_t bytes;
  unsigned count;  // with the blocks behind it
};

constexpr unsigned kMostKept = 4;  // more than a call holds at once

// As in plan_cache.cpp: a trivial pointer in the static TLS block. A pthread key frees the blocks.
__attribute__((tls_model("initial-exec"))) thread_local Header *kept = nullptr;

void free_kept(void *) {
  while (kept != nullptr) ::operator delete(std::exchange(kept, kept->next));
}

constinit base::ThreadKey kept_key(free_kept);

}  // namespace

void *take_block(std::size_t bytes) {
  Header *block = kept;
  if (block != nullptr) kept = block->next;
  if (block == nullptr || block->bytes < bytes) {
    ::operator delete(block);
    block = static_cast<Header *>(::operator new(sizeof(Header) + bytes));
    block->bytes = bytes;
  }
  return block + 1;
}

void give_block_back(void *bytes) noexcept {
  Header *block = static_cast<Header *>(bytes) - 1;
  block->count = kept != nullptr ? kept->count + 1 : 1;
  pthread_key_t key;
  if (block->count > kMostKept || !kept_key.find(&key) || pthread_setspecific(key, &kept) != 0)
    return ::operator delete(block);
  block->next = kept;
  kept = block;
}

}  // namespace tandem::api
