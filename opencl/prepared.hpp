// The choice of a kernel for a matrix, and how it is launched on this device.
#pragma once

#include <memory>

#include "device/kernel_chooser.hpp"
#include "opencl/factory.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

// What suits a device that nobody has measured.
device::DeviceSettings default_settings(const Device &device);

std::vector<core::TuningParameter> parameters_of(const device::DeviceSettings &settings, const Device &device);

inline const device::DevicePrepared &prepared_of(const core::Task &task) {
  return static_cast<const device::DevicePrepared &>(*task.prepared);
}

// A kernel chosen for a task.
struct Variant {
  device::KernelSpec spec;  // with a local size that the device runs
  std::shared_ptr<const Program> program;
  std::uint64_t staging_bytes = 0;
};

// The widest element.
inline constexpr std::uint64_t kAlignedBytes = 64;

class Chooser : public device::KernelChooser {
 public:
  Chooser(const Options &options, const Device &device, const base::Log &log);

  // Throws Error (UNAVAILABLE, INVALID_ARGUMENT) for forced values that the device cannot run.
  Variant choose(const device::DevicePrepared &prepared, Programs &programs, core::Mode mode, device::Access access,
                 device::Binding binding, std::uint64_t length_bytes) const;

  // For shards that begin, or do not all begin, at multiples of kAlignedBytes in buffers that the driver placed.
  device::Access access(bool is_aligned) const noexcept;

 private:
  void fit_local_size(const device::DevicePrepared &prepared, Variant &variant) const;

  const bool always_shifted_;
  const Device &device_;
  base::Log log_;
};

}  // namespace tandem::opencl
