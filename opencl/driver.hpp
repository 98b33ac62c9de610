// SPDX-License-Identifier: Apache-2.0
// The driver's C functions, made safe to use. Errors become exceptions with names, handles release themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "device/module.hpp"
#include "opencl/opencl_module.hpp"

namespace tandem::opencl {

using Driver = tandem_opencl_module;

extern const device::DeviceModule kModule;  // libtandem_opencl.so

// Its table. Throws Error (UNAVAILABLE).
inline const Driver &open_driver() { return device::open_table<Driver>(kModule); }

const char *error_name(cl_int error) noexcept;

// Throws device::DriverError.
[[noreturn]] void fail_call(cl_int error, const char *call);

inline void check(cl_int error, const char *call) {
  if (error != CL_SUCCESS) [[unlikely]]
    fail_call(error, call);
}

// Calls a function of the driver, which an error names.
#define OPENCL_CALL(driver, name, ...) ::tandem::opencl::check((driver).name(__VA_ARGS__), #name)

// Owns one OpenCL object. In a child after fork it stays as it is: it is the parent's driver's.
template <class Object>
class Handle {
 public:
  using Release = cl_int(CL_API_CALL *)(Object);
  Handle() = default;
  Handle(Object object, Release release) : object_(object), release_(release) {}
  Handle(Handle &&other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(std::exchange(other.release_, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    std::swap(object_, other.object_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Handle() { reset(); }

  Object get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  void reset() noexcept {
    if (object_ != nullptr && !kModule.in_child()) release_(object_);
    object_ = nullptr;
  }

 private:
  Object object_ = nullptr;
  Release release_ = nullptr;
};

using Context = Handle<cl_context>;
using Queue = Handle<cl_command_queue>;
using Buffer = Handle<cl_mem>;
using ProgramHandle = Handle<cl_program>;
using KernelHandle = Handle<cl_kernel>;

Queue make_queue(const Driver &driver, cl_context context, cl_device_id device);
Buffer make_buffer(const Driver &driver, cl_context context, cl_mem_flags flags, std::uint64_t bytes,
                   void *host = nullptr);

// The events of commands that belong together. A queue's order says nothing about success: a failed command fails the
// commands that wait for its event, and no others. So all events are kept and checked at the end.
class Events {
 public:
  Events() = default;
  ~Events() { reset(); }
  Events(const Events &) = delete;
  Events &operator=(const Events &) = delete;

  // The place where the next enqueuing function writes its command's event. Valid for that call alone.
  cl_event *next(const Driver &driver) {
    driver_ = &driver;
    return &raw_.emplace_back(nullptr);
  }
  std::span<const cl_event> all() const noexcept { return raw_; }  // until the next next()
  cl_event last() const noexcept { return raw_.empty() ? nullptr : raw_.back(); }
  bool empty() const noexcept { return raw_.empty(); }

  // Waits for all events, and drops them. Throws DriverError if one of the commands failed.
  void wait();
  void reset() noexcept;

 private:
  const Driver *driver_ = nullptr;
  std::vector<cl_event> raw_;
};

// A text property of a platform, device or program: `get` is the call with its first arguments bound.
template <class Get>
std::string text_of(Get get, const char *call) {
  std::size_t bytes = 0;
  check(get(0, nullptr, &bytes), call);
  constexpr std::size_t kMostBytes = 16 << 20;
  if (bytes > kMostBytes) fail_call(CL_INVALID_VALUE, call);
  std::string text(bytes, '\0');
  if (bytes != 0) check(get(bytes, text.data(), nullptr), call);
  if (const std::size_t end = text.find('\0'); end != std::string::npos) text.resize(end);
  return text;
}

}  // namespace tandem::opencl
