// Names of devices.
#pragma once

#include <optional>
#include <string>

namespace tandem::opencl {

struct DeviceNumbers {
  unsigned platform, device;
};

// The numbers of "opencl:P:D"; nothing for any other text.
std::optional<DeviceNumbers> numbers_of(const std::string &name) noexcept;

}  // namespace tandem::opencl
