// SPDX-License-Identifier: Apache-2.0
// Host memory: allocation of shards, content in shards, and registration for devices.

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "api/checks.hpp"
#include "api/objects.hpp"
#include "base/error.hpp"
#include "base/gate.hpp"
#include "base/overlap.hpp"
#include "base/rounding.hpp"
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
    base::fail(TANDEM_ERROR_UNSUPPORTED, "flags is ", "0x", base::digits(flags, 16), "; known: TANDEM_SHARDS_PINNED (",
               int{TANDEM_SHARDS_PINNED}, ")");
  }
  if (count == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "count is 0");
  constexpr std::size_t kMost = static_cast<std::size_t>(PTRDIFF_MAX) / 2;
  if (shard_bytes == 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "shard_bytes is 0");
  if (shard_bytes > kMost || count > kMost / (shard_bytes + 2 * kLine))
    base::fail(TANDEM_ERROR_TOO_LARGE, count, " shards of ", shard_bytes, " bytes do not fit the address space");
  const std::size_t lines = base::divide_up(shard_bytes, kLine) | 1;
  const bool is_pinned = (flags & TANDEM_SHARDS_PINNED) != 0;
  const std::size_t used_bytes = count * lines * kLine;
  const std::size_t block_bytes = is_pinned ? base::round_up(used_bytes, kPage) : used_bytes;
  auto *first = static_cast<std::byte *>(::operator new (block_bytes, std::align_val_t{kPage}));
  try {
    if (is_pinned) core::register_memory(first, block_bytes);
  } catch (...) {
    ::operator delete (first, std::align_val_t{kPage});
    throw;
  }
  for (std::size_t i = 0; i < count; ++i) shards_out[i] = first + i * lines * kLine;
}

std::uint64_t split_bytes(const core::Codec &codec, std::uint64_t content_bytes) {
  // Of shards in packets at most 2^32, so that k times as much fits.
  const std::uint64_t unit =
      codec.packets() ? codec.packets()->word_bits * codec.packets()->packet_bytes : core::element_bytes(codec.field());
  const std::uint64_t all_bytes = codec.k() * unit;
  const std::uint64_t units = std::max<std::uint64_t>(1, base::divide_up(content_bytes, all_bytes));
  if (units > std::uint64_t{PTRDIFF_MAX} / unit) fail_shard_bytes(content_bytes / codec.k(), codec.shard_count());
  check_shard_bytes(units * unit, codec.shard_count());
  return units * unit;
}

enum class To { shards, content };

// The content lies in the data shards, one run of bytes in each, and zeros after its end. Copies it there, or back.
void copy_content(const core::Codec &codec, std::byte *content, std::size_t content_bytes, void *const *shards,
                  std::size_t shard_bytes, To to) {
  const bool is_join = to == To::content;
  check_shard_bytes(shard_bytes, codec.k());
  if (content_bytes > codec.k() * shard_bytes)
    base::fail(TANDEM_ERROR_INVALID_ARGUMENT, codec.k(), " shards of ", shard_bytes, " bytes cannot hold ",
               content_bytes, " bytes of content");
  if (content == nullptr && content_bytes != 0) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the content is NULL");
  const std::size_t used = base::divide_up(content_bytes, shard_bytes);  // shards with content
  const std::size_t count = is_join ? used : codec.k();
  std::vector<base::Extent> extents;
  if (content_bytes != 0) extents.push_back({content, content_bytes, is_join, 0});
  for (std::size_t i = 0; i < count; ++i) {
    if (shards[i] == nullptr) base::fail(TANDEM_ERROR_INVALID_ARGUMENT, "the pointer to data shard ", i, " is NULL");
    extents.push_back({static_cast<std::byte *>(shards[i]), shard_bytes, !is_join, static_cast<std::uint16_t>(i)});
  }
  base::Overlap found;
  if (base::find_overlap(extents, &found))
    base::fail(TANDEM_ERROR_OVERLAP, "data shard ", std::max(found.output, found.other),
               " overlaps the content or another data shard");
  for (std::size_t i = 0; i < count; ++i) {
    auto *const shard = static_cast<std::byte *>(shards[i]);
    const std::size_t bytes = i < used ? std::min(shard_bytes, content_bytes - i * shard_bytes) : 0;
    if (is_join) {
      std::memcpy(content + i * shard_bytes, shard, bytes);
    } else {
      if (bytes != 0) std::memcpy(shard, content + i * shard_bytes, bytes);
      std::memset(shard + bytes, 0, shard_bytes - bytes);
    }
  }
}

}  // namespace
}  // namespace tandem::api

using namespace tandem;

extern "C" {

tandem_status tandem_split_bytes(const tandem_codec *codec, size_t content_bytes, size_t *shard_bytes_out) {
  return base::guarded({{"codec", codec}, {"shard_bytes_out", shard_bytes_out}},
                       [&] { *shard_bytes_out = api::split_bytes(*codec->codec, content_bytes); });
}

tandem_status tandem_split(const tandem_codec *codec, const void *content, size_t content_bytes, void *const *shards,
                           size_t shard_bytes) {
  return base::guarded({{"codec", codec}, {"shards", shards}}, [&] {
    auto *const read = static_cast<std::byte *>(const_cast<void *>(content));
    api::copy_content(*codec->codec, read, content_bytes, shards, shard_bytes, api::To::shards);
  });
}

tandem_status tandem_join(const tandem_codec *codec, const void *const *shards, size_t shard_bytes, void *content_out,
                          size_t content_bytes) {
  return base::guarded({{"codec", codec}, {"shards", shards}}, [&] {
    api::copy_content(*codec->codec, static_cast<std::byte *>(content_out), content_bytes,
                      const_cast<void *const *>(shards), shard_bytes, api::To::content);
  });
}

tandem_status tandem_memory_register(void *memory, size_t bytes) {
  return base::guarded([&] { core::register_memory(memory, bytes); });
}

tandem_status tandem_memory_unregister(void *memory) {
  return base::guarded([&] { core::unregister_memory(memory); });
}

tandem_status tandem_shards_allocate(size_t count, size_t shard_bytes, uint32_t flags, void **shards_out) {
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
