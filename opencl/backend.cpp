// SPDX-License-Identifier: Apache-2.0
// An OpenCL device behind the Backend interface.

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/backend.hpp"
#include "opencl/factory.hpp"
#include "opencl/session.hpp"

namespace tandem::opencl {
namespace {

using core::Control;
using core::MemoryKind;
using core::Task;
using device::DeviceSession;
using device::Workplace;

constexpr std::size_t kMostForeignContexts = 4;

class OpenclBackend final : public device::DeviceBackend {
 public:
  OpenclBackend(const Options &options, const base::Log &log)
      : DeviceBackend(options, kModule, MemoryKind::opencl, kMemoryResource, log), asked_(options) {}

 private:
  const OpenclDevice &opencl_device() const noexcept { return static_cast<const OpenclDevice &>(*known().device); }

  std::shared_ptr<const device::Device> find() const override {
    const Driver &driver = asked_.driver != nullptr ? *asked_.driver : open_driver();
    auto found = std::make_shared<OpenclDevice>(select_device(find_devices(driver, log_), asked_.device));
    found->always_shifted = asked_.always_shifted;
    found->most_launch_bytes = std::min(asked_.most_launch_bytes, device::most_launch_bytes(found->dialect));
    log_.say(
        TANDEM_LOG_INFO,
        base::text("opencl: ", found->name, " (", found->model(), ", ", found->driver_text(), "), ",
                   asked_.device == "opencl" ? (found->is_cpu() ? "the first device; there is no GPU or accelerator"
                                                                : "the first GPU or accelerator")
                                             : "as asked",
                   ": ", found->unit_count, " compute units, ", budget_bytes(*found, found->memory_bytes / 2), " of ",
                   found->memory_bytes, " bytes of memory"));
    return found;
  }

  std::shared_ptr<DeviceSession> open() const override { return open_in(nullptr); }
  std::shared_ptr<OpenclSession> open_in(cl_context foreign) const {
    return device::make_session<OpenclSession, kModule>(known().device, known().budget, known().disk, log_, foreign);
  }

  // The next call begins with fresh objects.
  void failed(const std::shared_ptr<DeviceSession> &session, const device::DriverError &error) override {
    if (session == nullptr) return;
    opencl_device().say(log_, TANDEM_LOG_WARNING, error.what(), "; its context is given up");
    const std::lock_guard lock(mutex_);
    if (session_ == session) session_.reset();
  }

  // The session in the context of a caller's queue. The latest few are kept, because their programs are built.
  std::shared_ptr<OpenclSession> session_in(cl_context context) {
    const std::lock_guard lock(mutex_);
    foreign_.remove_if([](const std::shared_ptr<OpenclSession> &each) { return each->is_lost(); });
    for (auto each = foreign_.begin(); each != foreign_.end(); ++each) {
      if ((*each)->context() != context) continue;
      foreign_.splice(foreign_.begin(), foreign_, each);
      return foreign_.front();
    }
    foreign_.push_front(open_in(context));
    if (foreign_.size() > kMostForeignContexts) foreign_.pop_back();
    return foreign_.front();
  }

  std::unique_ptr<core::Ticket> start_on_device(std::span<const Task> tasks, Control &control) override {
    const auto forget = [this](const device::DriverError &) {
      const std::lock_guard lock(mutex_);
      foreign_.clear();
    };
    try {
      return opencl::start_on_device([this](cl_context context) { return place_in(session_in(context)); },
                                     opencl_device(), tasks, control, forget);
    } catch (const device::DriverError &error) {
      forget(error);
      throw;
    }
  }

  void read_bytes(const Task &task, const void *shard, std::uint64_t offset_bytes, std::uint8_t *out,
                  std::size_t bytes) override {
    OPENCL_CALL(*opencl_device().driver, clEnqueueReadBuffer, static_cast<cl_command_queue>(task.queue),
                static_cast<cl_mem>(const_cast<void *>(shard)), CL_TRUE, offset_bytes, bytes, out, 0, nullptr, nullptr);
  }

  const Options asked_;
  std::list<std::shared_ptr<OpenclSession>> foreign_;
};

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log) {
  device::check_options(options, is_device_name(options.device), "OpenCL", "\"opencl\" and \"opencl:PLATFORM:DEVICE\"");
  if (options.driver == nullptr) kModule.check_installed();
  return std::make_unique<OpenclBackend>(options, log);
}

}  // namespace tandem::opencl
