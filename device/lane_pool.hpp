// Lanes of a device: what one run has to itself (queues, buffers). A few at most; who wants one waits while all are
// out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/backend.hpp"

namespace tandem::device {

template <class Lane>
class LanePool {
 public:
  explicit LanePool(unsigned most_lanes) : most_lanes_(most_lanes) {}

  class Lease {
   public:
    Lease(LanePool &pool, std::shared_ptr<void> owner, std::unique_ptr<Lane> lane)
        : owner_(std::move(owner)), pool_(pool), lane_(std::move(lane)) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      try {
        if (lane_ != nullptr) pool_.idle_.push_back(std::move(lane_));
      } catch (const std::bad_alloc &) {  // then it ends here
      }
      --pool_.out_;
      pool_.free_.notify_one();
    }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;
    Lane *operator->() const noexcept { return lane_.get(); }
    Lane &operator*() const noexcept { return *lane_; }
    std::unique_ptr<Lane> remove() noexcept { return std::move(lane_); }  // for one that is not to be used again

   private:
    std::shared_ptr<void> owner_;  // of the pool
    LanePool &pool_;
    std::unique_ptr<Lane> lane_;
  };

  // An idle lane, or what `make` returns. `cancelled` throws if the control says so while all lanes are out.
  template <class Make, class Cancelled>
  Lease take(std::shared_ptr<void> owner, const core::Control &control, Make &&make, Cancelled &&cancelled) {
    constexpr std::chrono::milliseconds kLookAtControl(10);
    std::unique_ptr<Lane> lane;
    {
      std::unique_lock lock(mutex_);
      // Who cancels has no way to wake this thread.
      while (!free_.wait_for(lock, kLookAtControl, [&] { return out_ < most_lanes_; }))
        if (control.cancelled()) cancelled();
      ++out_;
      if (!idle_.empty()) {
        lane = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    try {
      if (lane == nullptr) lane = make();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      --out_;
      free_.notify_one();
      throw;
    }
    return {*this, std::move(owner), std::move(lane)};
  }

  std::vector<std::unique_ptr<Lane>> take_idle() noexcept {
    const std::lock_guard lock(mutex_);
    return std::exchange(idle_, {});
  }

 private:
  const unsigned most_lanes_;
  std::mutex mutex_;
  std::condition_variable free_;
  unsigned out_ = 0;
  std::vector<std::unique_ptr<Lane>> idle_;
};

}  // namespace tandem::device
