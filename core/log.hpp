// Where decisions are told: the user's callback, or nowhere.
#pragma once

#include <string>

#include "tandem/tandem.h"

namespace tandem::core {

class Log {
 public:
  Log() = default;
  Log(tandem_log_callback callback, void *user, std::int32_t level) : callback_(callback), user_(user), level_(level) {}

  bool hears(std::int32_t level) const noexcept { return callback_ != nullptr && level >= level_; }
  void say(std::int32_t level, const std::string &message) const {
    if (hears(level)) callback_(user_, level, message.c_str());
  }

 private:
  tandem_log_callback callback_ = nullptr;
  void *user_ = nullptr;
  std::int32_t level_ = TANDEM_LOG_DEBUG;
};

}  // namespace tandem::core
