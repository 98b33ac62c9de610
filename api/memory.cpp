// SPDX-License-Identifier: Apache-2.0
// Host memory: allocation of shards, and registration for devices.

#include <new>

#include "base/error.hpp"
#include "base/gate.hpp"
#include "base/text.hpp"
#include "core/registered_memory.hpp"
#include "tandem/device.h"
#include "tandem/tandem.h"

namespace tandem::api {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line
// Allocations begin at a page, and registered ones end at one: a driver pins whole pages, each only once.
constexpr std::size_t kPage = 4096;

// Places the shards an odd number of lines apart. Shards at the same offset in their 4 KiB pages would compete for the
// same L1 set.
void allocate_shards(std::size_t count, std::size_t shard_bytes, std::uint32_t flags, void **shards_out) {
  if (flags > TANDEM_SHARDS_PINNED) {
    base::fail(TANDEM_ERROR_UNSUPPORTED, base::text("flags is ", "0x", base::digits(flags, 16),
                                                    "; known: TANDEM_SHARDS_PINNED (", int{TANDEM_SHARDS_PINNED}, ")"));
  }
  if (count == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "count is 0");
  constexpr std::size_t kMost = static_cast<std::size_t>(PTRDIFF_MAX) / 2;
  if (shard_bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes is 0");
  if (shard_bytes > kMost || count > kMost / (shard_bytes + 2 * kLine))
    base::fail(TANDEM_ERROR_TOO_LARGE,
               base::text(count, " shards of ", shard_bytes, " bytes do not fit the address space"));
  const std::size_t lines = (shard_bytes + kLine - 1) / kLine | 1;
  const bool is_pinned = (flags & TANDEM_SHARDS_PINNED) != 0;
  const std::size_t used_bytes = count * lines * kLine;
  const std::size_t block_bytes = is_pinned ? (used_bytes + kPage - 1) / kPage * kPage : used_bytes;
  auto *first = static_cast<std::byte *>(::operator new (block_bytes, std::align_val_t{kPage}));
  try {
    if (is_pinned) core::register_memory(first, block_bytes);
  } catch (...) {
    ::operator delete (first, std::align_val_t{kPage});
    throw;
  }
  for (std::size_t i = 0; i < count; ++i) shards_out[i] = first + i * lines * kLine;
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_memory_register(void *memory, size_t bytes) {
  return base::guarded([&] { core::register_memory(memory, bytes); });
}

tandem_status tandem_memory_unregister(void *memory) {
  return base::guarded([&] { core::unregister_memory(memory); });
}

tandem_status tandem_shards_allocate(size_t count, size_t shard_bytes, void **shards_out) {
  return tandem_shards_allocate_flags(count, shard_bytes, 0, shards_out);
}

tandem_status tandem_shards_allocate_flags(size_t count, size_t shard_bytes, uint32_t flags, void **shards_out) {
  return base::guarded({{"shards_out", shards_out}},
                       [&] { api::allocate_shards(count, shard_bytes, flags, shards_out); });
}

void tandem_shards_free(void *first_shard) {
  base::guarded([&] {
    core::unregister_if_registered(first_shard);
    ::operator delete (first_shard, std::align_val_t{api::kPage});
  });
}

}  // extern "C"
