// Errors inside the storage simulator; storage.cpp turns them into status codes.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "tandem/tandem.h"

namespace tandem::storage {

class Error : public std::exception {
 public:
  Error(tandem_status status, std::string message) : status_(status), message_(std::move(message)) {}
  tandem_status status() const noexcept { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  tandem_status status_;
  std::string message_;
};

}  // namespace tandem::storage
