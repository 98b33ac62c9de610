// SPDX-License-Identifier: Apache-2.0
// Controls access to the transaction: either any number of calls that change stripes, or one that commits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace tandem::volume {

class Gate {
 public:
  // `used` tells how many items the transaction has, of `limit`.
  Gate(std::uint64_t limit, std::function<std::uint64_t()> used) : limit_(limit), used_(std::move(used)) {}

  // Waits for a commit that runs or waits to run. Waits also while only the space that other calls have reserved is
  // missing. Then enters with space for `items` more. False, without having entered: there is no space until a commit.
  bool try_enter(std::uint64_t items) {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] { return used_() + reserved_ + items <= limit_; };
    changed_.wait(lock, [&] { return committers_ == 0 && (reserved_ == 0 || has_room()); });
    if (!has_room()) return false;
    reserved_ += items;
    ++inside_;
    return true;
  }
  void leave(std::uint64_t items) {
    const std::lock_guard lock(mutex_);
    reserved_ -= items;
    --inside_;
    changed_.notify_all();
  }

  class Exclusive {
   public:
    explicit Exclusive(Gate &gate) : gate_(gate) {
      std::unique_lock lock(gate_.mutex_);
      ++gate_.committers_;
      gate_.changed_.wait(lock, [this] { return gate_.inside_ == 0 && !gate_.committing_; });
      gate_.committing_ = true;
    }
    ~Exclusive() {
      const std::lock_guard lock(gate_.mutex_);
      --gate_.committers_;
      gate_.committing_ = false;
      gate_.changed_.notify_all();
    }
    Exclusive(const Exclusive &) = delete;
    Exclusive &operator=(const Exclusive &) = delete;

   private:
    Gate &gate_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t limit_, reserved_ = 0, inside_ = 0, committers_ = 0;
  std::function<std::uint64_t()> used_;
  bool committing_ = false;
};

}  // namespace tandem::volume
