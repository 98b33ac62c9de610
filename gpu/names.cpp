#include "gpu/names.hpp"

#include <charconv>
#include <string_view>

#include "gpu/factory.hpp"

namespace tandem::gpu {

std::optional<int> number_of(const std::string &name) noexcept {
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix) || name.find('-') != std::string::npos) return {};
  int number = 0;
  const char *end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || stopped != end) return {};
  return number;
}

bool is_device_name(const std::string &name) noexcept { return name == "cuda" || number_of(name).has_value(); }

}  // namespace tandem::gpu
