#include "opencl/names.hpp"

#include <charconv>
#include <cstdlib>
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

std::string default_cache_folder() {
  const auto variable = [](const char *name) {
    const char *value = secure_getenv(name);  // a set-uid program takes no folder from its user
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string own = variable("TANDEM_CACHE_DIR"); !own.empty()) return own + "/opencl";
  // XDG Base Directory Specification: a path that is not absolute is to be ignored.
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/')) return xdg + "/tandem/opencl";
  if (const std::string home = variable("HOME"); home.starts_with('/')) return home + "/.cache/tandem/opencl";
  return {};
}

}  // namespace tandem::opencl
