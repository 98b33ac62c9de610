// SPDX-License-Identifier: Apache-2.0
// The presets over GF(2^8) without local groups: those with a formula for each k and m.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/presets.hpp"

namespace tandem::test {

inline std::vector<core::Preset> plain_presets() {
  std::vector<core::Preset> plain;
  std::ranges::copy_if(core::presets(), std::back_inserter(plain),
                       [](const core::Preset &each) { return each.make != nullptr; });
  return plain;
}

// Whether all its matrices are Cauchy matrices (docs/matrices.md).
inline bool is_cauchy(const core::Preset &preset) {
  constexpr std::string_view kOthers[] = {"isal-vandermonde", "zfs-raidz", "snapraid-vandermonde", "par1"};
  return std::ranges::find(kOthers, preset.name) == std::ranges::end(kOthers);
}

}  // namespace tandem::test
