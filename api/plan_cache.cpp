// SPDX-License-Identifier: Apache-2.0
#include "api/plan_cache.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/thread_key.hpp"

namespace tandem::api {
namespace {

struct Entry {
  std::uint64_t context_id = 0;  // ids are never reused, so entries of destroyed objects are never found
  std::uint64_t codec_id = 0;
  bool encodes_all = false;
  std::shared_ptr<const core::Plan> plan;
};

// Most recently used first. A hit moves an entry up by one place. So frequent shapes stay in front, and the array is
// not shifted.
class Cache {
 public:
  static constexpr std::size_t kEntries = 16;
  // Counts coefficients alone. Kernel tables come on top: up to 64 times the coefficients over GF(2^8). 16 plans of the
  // widest codes over GF(2^8) have 0.3 MiB of coefficients.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  template <class Matches>
  Entry *find(std::uint64_t context_id, std::uint64_t codec_id, Matches &&matches) {
    const auto is_hit = [&](const Entry &entry) {
      return entry.context_id == context_id && entry.codec_id == codec_id && matches(entry);
    };
    return is_hit(entries_.front()) ? &entries_.front() : find_behind_front(is_hit);
  }

  Entry &insert(Entry entry) {
    std::move_backward(entries_.begin(), entries_.end() - 1, entries_.end());
    entries_.front() = std::move(entry);
    std::size_t bytes = 0;
    for (Entry &each : entries_) {
      if (each.plan == nullptr) continue;
      const std::size_t own = each.plan->memory_bytes();
      if (bytes + own > kMostBytes && &each != &entries_.front()) {
        each = {};
      } else {
        bytes += own;
      }
    }
    return entries_.front();
  }

 private:
  template <class IsHit>
  [[gnu::noinline]] Entry *find_behind_front(const IsHit &is_hit) {
    const auto found = std::find_if(entries_.begin() + 1, entries_.end(), is_hit);
    if (found == entries_.end()) return nullptr;
    std::swap(*found, found[-1]);
    return &found[-1];
  }

  std::array<Entry, kEntries> entries_;
};

// The pointer is trivial and in the static TLS block: reading it is one instruction. A pthread key frees the cache
// after the thread's thread_local objects, because their destructors may still encode. A later call makes another
// cache, which is freed too.
__attribute__((tls_model("initial-exec"))) thread_local Cache *this_threads_cache = nullptr;

void free_cache(void *cache) {
  this_threads_cache = nullptr;
  delete static_cast<Cache *>(cache);
}

constinit base::ThreadKey cache_key(free_cache);

// Out of line, like all that a hit does not need.
[[gnu::noinline]] Cache &make_cache() {
  auto made = std::make_unique<Cache>();
  pthread_key_t key;
  if (!cache_key.find(&key) || pthread_setspecific(key, made.get()) != 0) throw std::bad_alloc();
  return *(this_threads_cache = made.release());
}

Cache &cache() { return this_threads_cache != nullptr ? *this_threads_cache : make_cache(); }

[[gnu::noinline]] Entry &make_entry(const tandem_context &context, const tandem_codec &codec,
                                    const core::Shape &shape) {
  const bool encodes_all = shape.operation == core::Operation::encode && shape.wanted == all_parity(*codec.codec);
  return cache().insert({context.id, codec.codec->id(), encodes_all,
                         std::make_shared<const core::Plan>(*context.backend, codec.codec, shape)});
}

Entry &entry_for(const tandem_context &context, const tandem_codec &codec, const core::Shape &shape) {
  Entry *entry =
      cache().find(context.id, codec.codec->id(), [&](const Entry &each) { return each.plan->shape() == shape; });
  return entry != nullptr ? *entry : make_entry(context, codec, shape);
}

[[gnu::noinline]] const core::Plan &make_encode_plan(const tandem_context &context, const tandem_codec &codec) {
  core::Shape shape;
  shape.wanted = all_parity(*codec.codec);
  return *make_entry(context, codec, shape).plan;
}

}  // namespace

core::ShardSet all_parity(const core::Codec &codec) {
  core::ShardSet set;
  for (unsigned i = codec.k(); i < codec.shard_count(); ++i) set.set(i);
  return set;
}

const core::Plan &cached_plan(const tandem_context &context, const tandem_codec &codec, const core::Shape &shape) {
  return *entry_for(context, codec, shape).plan;
}

std::shared_ptr<const core::Plan> shared_plan(const tandem_context &context, const tandem_codec &codec,
                                              const core::Shape &shape) {
  return entry_for(context, codec, shape).plan;
}

const core::Plan &cached_encode_plan(const tandem_context &context, const tandem_codec &codec) {
  Entry *entry = cache().find(context.id, codec.codec->id(), [](const Entry &each) { return each.encodes_all; });
  return entry != nullptr ? *entry->plan : make_encode_plan(context, codec);
}

}  // namespace tandem::api
