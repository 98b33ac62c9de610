// SPDX-License-Identifier: Apache-2.0
// Sends decisions to the user's callback, if there is one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "base/fork.hpp"
#include "base/text.hpp"
#include "tandem/tandem.h"

namespace tandem::base {

class Log {
 public:
  Log() = default;
  Log(tandem_log_callback callback, void *user, std::int32_t level)
      : callback_(callback), user_(user), level_(level), mute_(std::make_shared<Mute>()) {}

  // Shared by this log and all its copies: the user has ended the context. Threads that are left behind in a driver log
  // nothing then.
  void mute() const noexcept {
    if (mute_ == nullptr) return;
    mute_->is_muted = true;
    if (!mute_->is_of_this_process()) return;
    const std::unique_lock wait_for_calls_under_way(mute_->mutex);
  }

  bool hears(std::int32_t level) const noexcept { return callback_ != nullptr && level >= level_; }
  void say(std::int32_t level, const std::string &message) const {
    if (!hears(level)) return;
    std::shared_lock lock(mute_->mutex, std::defer_lock);
    if (mute_->is_of_this_process()) lock.lock();
    if (!mute_->is_muted) callback_(user_, level, message.c_str());
  }
  // A message of several parts, as text() takes them.
  template <class First, class Second, class... More>
  void say(std::int32_t level, const First &first, const Second &second, const More &...more) const {
    if (hears(level)) say(level, text(first, second, more...));
  }

 private:
  struct Mute {
    // Other threads of the parent may have held the lock at a fork. They do not exist in the child.
    bool is_of_this_process() const noexcept { return generation == fork_generation(); }

    std::shared_mutex mutex;
    std::atomic<bool> is_muted{false};
    const std::uint32_t generation = fork_generation();
  };

  tandem_log_callback callback_ = nullptr;
  void *user_ = nullptr;
  std::int32_t level_ = TANDEM_LOG_DEBUG;
  std::shared_ptr<Mute> mute_;
};

}  // namespace tandem::base
