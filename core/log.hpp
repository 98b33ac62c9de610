// Where decisions are told: the user's callback, or nowhere.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "tandem/tandem.h"

namespace tandem::core {

class Log {
 public:
  Log() = default;
  Log(tandem_log_callback callback, void *user, std::int32_t level)
      : callback_(callback), user_(user), level_(level), mute_(std::make_shared<Mute>()) {}

  // Of this one and all its copies: the user has ended the context. Who was left behind in a driver says no more.
  void mute() const noexcept {
    if (mute_ == nullptr) return;
    const std::unique_lock lock(mute_->mutex);  // no call is under way any more
    mute_->is_muted = true;
  }

  bool hears(std::int32_t level) const noexcept { return callback_ != nullptr && level >= level_; }
  void say(std::int32_t level, const std::string &message) const {
    if (!hears(level)) return;
    const std::shared_lock lock(mute_->mutex);
    if (!mute_->is_muted) callback_(user_, level, message.c_str());
  }

 private:
  struct Mute {
    std::shared_mutex mutex;
    bool is_muted = false;
  };

  tandem_log_callback callback_ = nullptr;
  void *user_ = nullptr;
  std::int32_t level_ = TANDEM_LOG_DEBUG;
  std::shared_ptr<Mute> mute_;
};

}  // namespace tandem::core
