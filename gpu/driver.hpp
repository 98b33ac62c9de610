// SPDX-License-Identifier: Apache-2.0
// The driver's C functions, made safe to use. Errors become exceptions with names, a scope makes a context current, and
// a device that died is remembered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "device/device.hpp"
#include "device/module.hpp"
#include "gpu/cuda_module.hpp"

namespace tandem::gpu {

using Driver = tandem_cuda_module;

extern const device::DeviceModule kModule;  // libtandem_cuda.so

// Its table, which may have a problem. Throws Error (UNAVAILABLE).
inline const Driver &open_driver() { return device::open_table<Driver>(kModule); }

// Throws device::DriverError.
[[noreturn]] void fail_call(const Driver &driver, CUresult error, const char *call);

inline void check(const Driver &driver, CUresult error, const char *call) {
  if (error != CUDA_SUCCESS) [[unlikely]]
    fail_call(driver, error, call);
}

// Calls a function of the driver, which an error names.
#define CUDA_CALL(driver, name, ...) ::tandem::gpu::check(driver, (driver).name(__VA_ARGS__), #name)

std::string error_name(const Driver &driver, CUresult error);

// After such an error nothing works in the device's primary context any more. Other libraries of this process may use
// that context too, so it cannot be made anew.
bool is_sticky(int error) noexcept;

// A foreign capture forbade the call. The error tells nothing about the device, nor about the work that the call waited
// for.
bool is_of_capture(int error) noexcept;

// Devices that this process has given up, with the reason. The driver's number of a device is the key.
void give_up(const Driver &driver, int ordinal, const std::string &reason);
std::optional<std::string> given_up(const Driver &driver, int ordinal);
void forget_given_up(const Driver &driver) noexcept;  // for tests, when a driver is gone

// While another thread captures a stream in mode GLOBAL (the default), the driver refuses most of our calls and
// invalidates that capture. So the calling thread must declare that it takes no part in it.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const Driver *driver) noexcept : driver_(driver) {  // null: does nothing
    if (driver_ != nullptr && driver_->cuThreadExchangeStreamCaptureMode(&mode_) != CUDA_SUCCESS) driver_ = nullptr;
  }
  ~OutsideCaptures() {
    if (driver_ != nullptr) driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideCaptures(const OutsideCaptures &) = delete;
  OutsideCaptures &operator=(const OutsideCaptures &) = delete;

 private:
  const Driver *driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // after the swap: the caller's own
};

// Makes a context current for a scope, without captures. The caller's own is current again afterwards. False if it
// cannot be made current, and in a child after fork: for destructors.
class QuietContextScope {
 public:
  // Twice, because an object that is not released now is lost.
  QuietContextScope(const Driver &driver, CUcontext context, unsigned most_tries = 2) noexcept
      : driver_(driver), outside_(kModule.in_child() ? nullptr : &driver) {
    for (unsigned tries = 0; tries < most_tries && error_ != CUDA_SUCCESS && !kModule.in_child(); ++tries)
      error_ = driver.cuCtxPushCurrent(context);
  }
  ~QuietContextScope() {
    CUcontext popped = nullptr;
    if (*this) driver_.cuCtxPopCurrent(&popped);
  }
  QuietContextScope(const QuietContextScope &) = delete;
  QuietContextScope &operator=(const QuietContextScope &) = delete;
  explicit operator bool() const noexcept { return error_ == CUDA_SUCCESS; }
  const Driver *operator->() const noexcept { return &driver_; }
  CUresult error() const noexcept { return error_; }

 private:
  const Driver &driver_;
  const OutsideCaptures outside_;
  CUresult error_ = CUDA_ERROR_NOT_INITIALIZED;
};

// The same, or throws DriverError.
class ContextScope : private QuietContextScope {
 public:
  ContextScope(const Driver &driver, CUcontext context) : QuietContextScope(driver, context, 1) {
    check(driver, error(), "cuCtxPushCurrent");
  }
};

// Owns an object of the driver in a context; `kRelease` is the driver's function for it.
template <class Object, auto kRelease>
class Owned {
 public:
  Owned(const Driver &driver, CUcontext context) noexcept : driver_(driver), context_(context) {}
  ~Owned() {
    if (object_ == Object{}) return;
    if (const QuietContextScope current(driver_, context_); current) (driver_.*kRelease)(object_);
  }
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
  Object get() const noexcept { return object_; }

 protected:
  const Driver &driver_;
  const CUcontext context_;
  Object object_ = {};  // set by the constructor of the derived class
};

}  // namespace tandem::gpu
