// Names of devices.
#pragma once

#include <optional>
#include <string>

namespace tandem::gpu {

// The number of "cuda:N"; nothing for any other text.
std::optional<int> number_of(const std::string &name) noexcept;

}  // namespace tandem::gpu
