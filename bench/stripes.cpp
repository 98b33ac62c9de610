// SPDX-License-Identifier: Apache-2.0
#include "bench/stripes.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "base/rounding.hpp"

namespace tandem::bench {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kBlockBytes = 16, kBlockHeaderBytes = 8;  // of glibc's malloc, below 128 KiB

constexpr std::pair<MemoryPlacement, const char *> kPlacements[] = {
    {MemoryPlacement::contiguous, "contiguous"},
    {MemoryPlacement::scattered, "scattered"},
    {MemoryPlacement::page_aligned, "page-aligned"},
    {MemoryPlacement::allocated, "malloc"},
};

using base::round_up;

// The distance from the place of one shard to the place of the next.
std::size_t slot_bytes(const Layout &layout) {
  switch (layout.placement) {
    case MemoryPlacement::contiguous:
      // Odd: an even step that is no multiple of a cache line, so that each shard starts at another odd offset.
      return layout.odd ? round_up(layout.shard_bytes + 1, 2u) + 2 : layout.shard_bytes;
    case MemoryPlacement::scattered:
      return round_up(layout.shard_bytes, kPageBytes) + kPageBytes;
    case MemoryPlacement::page_aligned:
      return round_up(layout.shard_bytes, kPageBytes);
    case MemoryPlacement::allocated:
      return round_up(layout.shard_bytes + kBlockHeaderBytes, kBlockBytes);
  }
  return 0;
}

std::vector<std::size_t> shard_offsets(const Layout &layout) {
  const std::size_t count = layout.shard_count * layout.stripe_count;
  std::vector<std::size_t> slots(count);
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::mt19937_64 random(layout.seed);
  if (layout.placement == MemoryPlacement::scattered) std::shuffle(slots.begin(), slots.end(), random);

  const std::size_t step = slot_bytes(layout);
  const bool is_allocated = layout.placement == MemoryPlacement::allocated;
  const bool odd_addresses = layout.odd && layout.placement != MemoryPlacement::page_aligned && !is_allocated;
  std::vector<std::size_t> offsets(count);
  for (std::size_t i = 0; i < count; ++i) {
    offsets[i] = slots[i] * step + (odd_addresses ? 1 : 0) + (is_allocated ? kBlockBytes : 0);
    if (layout.placement == MemoryPlacement::scattered) offsets[i] += random() % (kPageBytes / kLineBytes) * kLineBytes;
  }
  return offsets;
}

std::size_t arena_bytes(const Layout &layout) {
  return round_up(layout.shard_count * layout.stripe_count * slot_bytes(layout) + kLineBytes, kPageBytes);
}

// Page-aligned memory of its own. The kernel's huge-page policy applies to it as to any large allocation.
unsigned char *map(std::size_t bytes) {
  void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<unsigned char *>(memory);
}

}  // namespace

MemoryPlacement placement_from_name(const std::string &name) {
  for (const auto &[placement, known] : kPlacements) {
    if (name == known) return placement;
  }
  throw std::runtime_error(fmt::format("unknown placement \"{}\"", name));
}

std::string placement_name(MemoryPlacement placement) {
  for (const auto &[known, name] : kPlacements) {
    if (placement == known) return name;
  }
  return "?";
}

StripeView StripeView::columns(std::size_t begin_bytes, std::size_t end_bytes) const {
  std::vector<unsigned char *> pointers = pointers_;
  for (unsigned char *&pointer : pointers) pointer += begin_bytes;
  return {std::move(pointers), shard_count_, end_bytes - begin_bytes};
}

StripeView StripeView::only(const std::vector<unsigned> &wanted) const {
  std::vector<unsigned char *> pointers;
  for (std::size_t stripe = 0; stripe < stripe_count(); ++stripe) {
    for (const unsigned shard : wanted) pointers.push_back(shards(stripe)[shard]);
  }
  return {std::move(pointers), wanted.size(), shard_bytes_};
}

void Stripes::Unmap::operator()(unsigned char *memory) const { munmap(memory, bytes); }

Stripes::Stripes(const Layout &layout)
    : memory_(map(arena_bytes(layout)), Unmap{arena_bytes(layout)}), view_({}, layout.shard_count, layout.shard_bytes) {
  std::mt19937_64 random(layout.seed);
  const std::size_t bytes = memory_.get_deleter().bytes;
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory_.get() + at, &word, sizeof word);
  }
  std::vector<unsigned char *> pointers;
  for (const std::size_t offset : shard_offsets(layout)) pointers.push_back(memory_.get() + offset);
  view_ = StripeView(std::move(pointers), layout.shard_count, layout.shard_bytes);
}

}  // namespace tandem::bench
