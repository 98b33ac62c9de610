// SPDX-License-Identifier: Apache-2.0
// Which workers may take work, and how much.
#pragma once

namespace tandem::hybrid {

enum class Policy {
  budget,    // an idle worker takes a chunk, within the amounts of the resources
  automatic  // the rule of hybrid/policy/share.hpp, within the amounts of the resources
};

}  // namespace tandem::hybrid
