// SPDX-License-Identifier: Apache-2.0
// The phases of technique `transform`: the text inside device/text/transform.h, from the points of a Cauchy code.
// docs/internals/GENERATED.md explains them.
#pragma once

#include <string>

#include "core/operator.hpp"
#include "device/kernel_text.hpp"

namespace tandem::device {

struct TransformText {
  std::string defines;  // before the parameters: the constants that the phases read
  std::string phases;
};

// spec.points is set. Adds to `operations`.
TransformText write_transform(const KernelSpec &spec, KernelOperations &operations);

// The work-groups that devices run: a row of items is a warp of NVIDIA. Local memory has a group of inputs for each of
// the four rows. An item keeps 16 sums for each group of outputs, so that registers suffice for 8 groups.
KernelTuning transform_tuning();
inline constexpr unsigned kMostTransformGroups = 8;

}  // namespace tandem::device
