// Whose a driver of devices is. What it holds (threads, open devices) is lost in a child after fork, so it belongs to
// the process that came to it first.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace tandem::device {

class DriverClaim {
 public:
  // For messages: "opencl", "OpenCL".
  constexpr DriverClaim(const char *backend, const char *driver) : backend_(backend), driver_(driver) {}

  // To be called before a driver's first function. Throws Error (DEVICE) in a child whose parent had come so far.
  void claim() {
    const std::uint32_t now = base::fork_generation();
    std::uint32_t claimed = 0;
    if (claimed_in_.compare_exchange_strong(claimed, now) || claimed == now) return;
    const std::string driver = driver_;
    base::fail(TANDEM_ERROR_DEVICE,
               "backend \"" + std::string(backend_) + "\": this process was forked by one that had used " + driver +
                   ", and " + driver +
                   " drivers do not survive a fork; use the backend \"cpu\" in children, or start them "
                   "by exec");
  }

  bool in_child() const noexcept {  // such a one
    const std::uint32_t generation = claimed_in_.load();
    return generation != 0 && generation != base::fork_generation();
  }

 private:
  const char *backend_, *driver_;
  std::atomic<std::uint32_t> claimed_in_{0};  // the fork_generation() of the process that did; 0: nobody
};

}  // namespace tandem::device
