// SPDX-License-Identifier: Apache-2.0
// Blocks of the current transaction that replace others. They are written to their places after the commit.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "volume/bytes.hpp"

namespace tandem::volume {

class Pending {
 public:
  // Without a payload: a hole. The block is not needed any more, but a crash before the commit needs it again.
  using Payload = std::shared_ptr<const Buffer>;

  void put(std::uint32_t member, std::uint64_t block, const std::byte *from) {
    auto buffer = std::make_shared<Buffer>(kBlockBytes);
    std::memcpy(buffer->data(), from, kBlockBytes);
    insert(member, block, std::move(buffer));
  }
  void put_hole(std::uint32_t member, std::uint64_t block) { insert(member, block, nullptr); }

  std::optional<Payload> find(std::uint32_t member, std::uint64_t block) const {
    if (size_.load(std::memory_order_acquire) == 0) return {};
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(key(member, block));
    return found == blocks_.end() ? std::optional<Payload>() : found->second;
  }
  std::size_t size() const { return size_.load(std::memory_order_acquire); }

  struct Block {
    std::uint32_t member;
    std::uint64_t number;
    Payload payload;
  };
  std::vector<Block> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<Block> found;
    for (const auto &[at, payload] : blocks_)
      found.push_back({static_cast<std::uint32_t>(at >> 48), at & ((std::uint64_t{1} << 48) - 1), payload});
    return found;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    blocks_.clear();
    size_.store(0, std::memory_order_release);
  }

 private:
  static std::uint64_t key(std::uint32_t member, std::uint64_t block) { return std::uint64_t{member} << 48 | block; }
  void insert(std::uint32_t member, std::uint64_t block, Payload payload) {
    const std::lock_guard lock(mutex_);
    blocks_[key(member, block)] = std::move(payload);
    size_.store(blocks_.size(), std::memory_order_release);
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Payload> blocks_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace tandem::volume
