// SPDX-License-Identifier: Apache-2.0
// A backend's description of its device, and the error of a failed call of its driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "core/tuning.hpp"
#include "device/built_in.hpp"
#include "device/kernel_text.hpp"

namespace tandem::device {

// The values that may be tuned.
struct DeviceSettings {
  KernelTuning kernel;
  std::uint64_t staging_bytes = 0;        // of a piece: inputs and outputs together
  std::uint64_t compile_after_bytes = 0;  // of inputs that a matrix was applied to
  bool transforms = false;                // technique transform, where it is possible, in place of compiled
};

// Each backend derives a class with its driver's data from it.
struct Device {
  virtual ~Device();

  // Default values for a device without measurements, for a matrix of this shape.
  DeviceSettings settings(unsigned rows, unsigned columns) const;

  const std::string &model() const noexcept { return identity.device; }
  const std::string &driver_text() const noexcept { return identity.driver; }

  // "CUDA: ..."
  template <class... Parts>
  [[noreturn]] void fail(tandem_status status, const Parts &...parts) const {
    base::fail(status, base::text(label, ": ", parts...));
  }
  // "cuda: cuda:0: ..."; nothing if there is no memory for the line.
  template <class... Parts>
  void say(const base::Log &log, std::int32_t level, const Parts &...parts) const noexcept {
    if (!log.hears(level)) return;
    try {
      log.say(level, base::text(identity.backend, ": ", name, ": ", parts...));
    } catch (const std::bad_alloc &) {
    }
  }

  const char *label = "";  // in messages: "OpenCL"
  std::string name;        // "opencl:0:1"
  core::TuningIdentity identity;
  std::uint64_t memory_bytes = 0;
  std::uint64_t local_bytes = 0;  // of a work-group
  std::uint64_t most_buffer_bytes = UINT64_MAX;
  std::uint64_t most_launch_bytes = UINT64_MAX;  // of a shard in one launch
  unsigned unit_count = 0;                       // compute units, multiprocessors
  // Items of a work-group: in each dimension, and together.
  std::array<std::size_t, 3> most_items{};
  std::size_t most_group_items = 0;

  Vendor vendor = Vendor::other;
  std::uint64_t compile_after_bytes = 0;  // as DeviceSettings, without measurements
  Dialect dialect = Dialect::opencl_c;
  bool byte_lanes = false;
  unsigned architecture = 75;              // CUDA C: KernelSpec's
  unsigned most_element_bytes = 64;        // that a kernel can have
  Loads most_loads = Loads::plain;         // the last kind that a kernel can have
  unsigned most_tried_element_bytes = 64;  // by autotune
  // Local sizes that autotune tries, least and most; 0: not tried.
  std::array<std::array<std::size_t, 2>, 3> tried_items{};
  bool shares_memory = false;  // CUDA: it reads and writes all host memory directly, without staging
  // The driver allocates memory when a buffer is created. So smaller pieces help after an out-of-memory error.
  bool allocates_at_once = false;
};

// A call of the driver failed. Status: OUT_OF_MEMORY for errors of that kind, else DEVICE.
class DriverError : public base::Error {
 public:
  DriverError(tandem_status status, std::string message, int number)
      : Error(status, std::move(message)), number_(number) {}
  int number() const noexcept { return number_; }  // the driver's

 private:
  int number_;
};

[[noreturn]] void fail_cancelled(const Device &device);

}  // namespace tandem::device
