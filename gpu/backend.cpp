// SPDX-License-Identifier: Apache-2.0
// A GPU behind the Backend interface.

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/backend.hpp"
#include "gpu/factory.hpp"
#include "gpu/session.hpp"

namespace tandem::gpu {
namespace {

using core::Control;
using core::MemoryKind;
using core::Mode;
using core::Task;
using device::DevicePrepared;
using device::Workplace;

class CudaBackend final : public device::DeviceBackend {
 public:
  CudaBackend(const Options &options, const base::Log &log)
      : DeviceBackend(options, kModule, MemoryKind::cuda, kMemoryResource, log), asked_(options) {}

  // Runs of a plan on device memory may have shards anywhere, and may capture the first run. So two programs are made,
  // at once.
  void make_ready(const core::Prepared &given, Mode mode, MemoryKind memory, bool waits) override {
    if (given.rows() == 0 || given.columns() == 0 || (memory == MemoryKind::host && !waits)) return;
    found();
    const auto &prepared = static_cast<const DevicePrepared &>(given);
    guarded([&](const Workplace &place) {
      if (memory == MemoryKind::host) {
        prepared.raise(DevicePrepared::Need::now);
        place.choose(prepared, mode, place.session->access_of_slots(), device::Binding::offsets, 0);
        return;
      }
      prepared.raise(waits ? DevicePrepared::Need::now : DevicePrepared::Need::soon);
      constexpr device::Access kBoth[] = {device::Access::aligned, device::Access::shifted};
      for (const device::Access access : kBoth)
        place.chooser.begin(prepared, place.session->programs(), mode, access, device::Binding::offsets);
      std::exception_ptr error;
      for (const device::Access access : kBoth) {
        try {
          place.choose_and_keep(prepared, mode, access, device::Binding::offsets, 0);
        } catch (...) {
          if (!error) error = std::current_exception();
        }
      }
      if (error) std::rethrow_exception(error);
    });
  }

 private:
  std::shared_ptr<const device::Device> find() const override {
    const Driver &driver = asked_.driver != nullptr ? *asked_.driver : open_driver();
    std::string left_out;
    const std::vector<CudaDevice> devices = find_devices(driver, log_, &left_out);
    auto found = std::make_shared<CudaDevice>(select_device(devices, asked_.device, left_out));
    found->most_launch_bytes = std::min(asked_.most_launch_bytes, device::most_launch_bytes(found->dialect));
    log_.say(TANDEM_LOG_INFO,
             base::text("cuda: ", found->name, " (", found->model(), ", compute capability ", capability_text(*found),
                        ", driver of ", found->driver_text(), "), ",
                        asked_.device == "cuda" ? "the first that can be used" : "as asked", ": ", found->unit_count,
                        " multiprocessors, ", found->memory_bytes, " bytes of memory"));
    return found;
  }

  void check_usable(const device::Device &of) const override {
    const CudaDevice &device = static_cast<const CudaDevice &>(of);
    if (const auto reason = given_up(*device.driver, device.ordinal)) {
      device.fail(TANDEM_ERROR_DEVICE, device.name, " was given up for the rest of this process: ", *reason);
    }
  }

  std::shared_ptr<device::DeviceSession> open() const override {
    return device::make_session<CudaSession, kModule>(known().device, known().budget, known().disk, log_);
  }

  // After an error that the device does not survive, it is given up.
  void failed(const std::shared_ptr<device::DeviceSession> &session, const device::DriverError &error) override {
    const CudaDevice &device = static_cast<const CudaDevice &>(*known().device);
    if (!is_sticky(error.number())) {
      device.say(log_, TANDEM_LOG_WARNING, error.what());
    } else if (session != nullptr) {
      static_cast<CudaSession &>(*session).give_up(error.what());
    } else {
      give_up(device, error.what(), log_);
    }
  }

  std::unique_ptr<core::Ticket> start_on_device(std::span<const Task> tasks, Control &control) override {
    std::unique_ptr<core::Ticket> ticket;
    guarded([&](const Workplace &place) {
      ticket = gpu::start_on_device(
          place, tasks, control,
          [this, session = place.session](const device::DriverError &error) { failed(session, error); });
    });
    return ticket;
  }

  void read_bytes(const Task &, const void *shard, std::uint64_t offset_bytes, std::uint8_t *out,
                  std::size_t bytes) override {
    guarded([&](const Workplace &place) {
      session_of(place).fetch(out, reinterpret_cast<CUdeviceptr>(shard) + offset_bytes, bytes);
    });
  }

  const Options asked_;
};

}  // namespace

std::unique_ptr<core::Backend> make_backend(const Options &options, const base::Log &log) {
  device::check_options(options, is_device_name(options.device), "CUDA", "\"cuda\" and \"cuda:N\"");
  if (options.driver == nullptr) kModule.check_installed();
  return std::make_unique<CudaBackend>(options, log);
}

}  // namespace tandem::gpu
