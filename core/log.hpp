// Where decisions are told: the user's callback, or nowhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tandem/tandem.h"

namespace tandem::core {

class Log {
 public:
  Log() = default;
  Log(tandem_log_callback callback, void *user, std::int32_t level)
      : callback_(callback), user_(user), level_(level), is_muted_(std::make_shared<std::atomic<bool>>(false)) {}

  // Of this one and all its copies: the user has ended the context. Who was left behind in a driver says no more.
  void mute() const noexcept {
    if (is_muted_ != nullptr) is_muted_->store(true);
  }

  bool hears(std::int32_t level) const noexcept {
    return callback_ != nullptr && level >= level_ && !is_muted_->load();
  }
  void say(std::int32_t level, const std::string &message) const {
    if (hears(level)) callback_(user_, level, message.c_str());
  }

 private:
  tandem_log_callback callback_ = nullptr;
  void *user_ = nullptr;
  std::int32_t level_ = TANDEM_LOG_DEBUG;
  std::shared_ptr<std::atomic<bool>> is_muted_;
};

}  // namespace tandem::core
