#include "opencl/names.hpp"

#include <charconv>
#include <string_view>

#include "opencl/factory.hpp"

namespace tandem::opencl {

std::optional<DeviceNumbers> numbers_of(const std::string &name) noexcept {
  constexpr std::string_view kPrefix = "opencl:";
  if (!name.starts_with(kPrefix)) return {};
  DeviceNumbers numbers{};
  const char *end = name.data() + name.size();
  const auto first = std::from_chars(name.data() + kPrefix.size(), end, numbers.platform);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return {};
  const auto second = std::from_chars(first.ptr + 1, end, numbers.device);
  if (second.ec != std::errc() || second.ptr != end) return {};
  return numbers;
}

bool is_device_name(const std::string &name) noexcept { return name == "opencl" || numbers_of(name).has_value(); }

}  // namespace tandem::opencl
