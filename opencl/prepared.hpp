// The choice of a kernel for a matrix, and how it is launched on this device.
#pragma once

#include <memory>

#include "core/device_kernels.hpp"
#include "opencl/factory.hpp"
#include "opencl/programs.hpp"

namespace tandem::opencl {

// What suits a device that nobody has measured.
core::DeviceSettings default_settings(const Device &device);

std::vector<core::TuningParameter> parameters_of(const core::DeviceSettings &settings, const Device &device);

inline const core::DevicePrepared &prepared_of(const core::Task &task) {
  return static_cast<const core::DevicePrepared &>(*task.prepared);
}

// A kernel chosen for a task.
struct Variant {
  core::KernelSpec spec;  // with a local size that the device runs
  std::shared_ptr<const Program> program;
  std::uint64_t staging_bytes = 0;
};

// The widest element.
inline constexpr std::uint64_t kAlignedBytes = 64;

class Chooser : public core::KernelChooser {
 public:
  Chooser(const Options &options, const Device &device, const core::Log &log);

  // Throws Error (UNAVAILABLE, INVALID_ARGUMENT) for forced values that the device cannot run.
  Variant choose(const core::DevicePrepared &prepared, Programs &programs, core::Mode mode, core::Access access,
                 core::Binding binding, std::uint64_t length_bytes) const;

  // For shards that begin, or do not all begin, at multiples of kAlignedBytes in buffers that the driver placed.
  core::Access access(bool is_aligned) const noexcept;

 private:
  void fit_local_size(const core::DevicePrepared &prepared, Variant &variant) const;

  const bool always_shifted_;
  const Device &device_;
  core::Log log_;
};

}  // namespace tandem::opencl
