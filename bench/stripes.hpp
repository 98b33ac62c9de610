// SPDX-License-Identifier: Apache-2.0
// The memory of a benchmark: stripes of equal shards, placed as requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::bench {

enum class MemoryPlacement {
  contiguous,    // the shards of a stripe one after the other
  scattered,     // every shard at a random place, at a random multiple of 64 bytes in its page
  page_aligned,  // every shard at a 4 KiB boundary: all of them collide in the L1 cache
  allocated      // as malloc lays blocks out one after the other: each 8 bytes more than it needs, at a multiple of 16
                 // bytes
};

MemoryPlacement placement_from_name(const std::string &name);
std::string placement_name(MemoryPlacement placement);

// What to allocate. Lengths are those of one stripe, all its shards together.
struct Layout {
  std::size_t shard_count = 0;  // of a stripe
  std::size_t shard_bytes = 0;
  std::size_t stripe_count = 1;  // 1: every call uses the same memory; more: each call uses the next stripe
  MemoryPlacement placement = MemoryPlacement::contiguous;
  bool odd = false;  // addresses are odd too (except page_aligned and allocated)
  std::uint64_t seed = 1;
};

// The same byte range of every shard, stripe after stripe.
class StripeView {
 public:
  StripeView(std::vector<unsigned char *> pointers, std::size_t shard_count, std::size_t shard_bytes)
      : pointers_(std::move(pointers)), shard_count_(shard_count), shard_bytes_(shard_bytes) {}

  std::size_t stripe_count() const { return pointers_.size() / shard_count_; }
  std::size_t shard_count() const { return shard_count_; }
  std::size_t shard_bytes() const { return shard_bytes_; }
  unsigned char *const *shards(std::size_t stripe) const { return &pointers_[stripe * shard_count_]; }

  // The bytes from begin to end of each shard.
  StripeView columns(std::size_t begin_bytes, std::size_t end_bytes) const;
  // Some of each stripe's shards, in that order.
  StripeView only(const std::vector<unsigned> &shards) const;

 private:
  std::vector<unsigned char *> pointers_;
  std::size_t shard_count_;
  std::size_t shard_bytes_;
};

class Stripes {
 public:
  explicit Stripes(const Layout &layout);  // filled with random bytes; throws std::bad_alloc

  const StripeView &all() const { return view_; }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(unsigned char *memory) const;
  };
  std::unique_ptr<unsigned char, Unmap> memory_;
  StripeView view_;
};

}  // namespace tandem::bench
