// SPDX-License-Identifier: Apache-2.0
// Memory for views, used again. Fresh memory costs a page fault for each 4 KiB, which takes longer than encoding into
// it.
#pragma once

#include <mutex>
#include <vector>

#include "volume/bytes.hpp"

namespace tandem::volume {

class Spares {
 public:
  // Keeps buffers of stripe_bytes, up to kMostBytes of them.
  explicit Spares(std::uint64_t stripe_bytes)
      : stripe_bytes_(stripe_bytes), most_(static_cast<std::size_t>(kMostBytes / stripe_bytes)) {
    kept_.reserve(most_);
  }

  // At least `bytes`, which are at most stripe_bytes.
  Buffer take(std::size_t bytes) {
    if (most_ == 0) return Buffer(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (!kept_.empty()) {
        Buffer buffer = std::move(kept_.back());
        kept_.pop_back();
        return buffer;
      }
    }
    return Buffer(stripe_bytes_);
  }
  void give_back(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    if (kept_.size() < most_) kept_.push_back(std::move(buffer));
  }

 private:
  static constexpr std::uint64_t kMostBytes = 64 << 20;

  std::uint64_t stripe_bytes_;
  std::size_t most_;
  std::mutex mutex_;
  std::vector<Buffer> kept_;  // the last used first
};

}  // namespace tandem::volume
