// SPDX-License-Identifier: Apache-2.0
// Errors of the volume.
#pragma once

#include "base/gate.hpp"

namespace tandem::volume {

using base::check;
using base::Error;
using base::fail;
using base::guarded;

}  // namespace tandem::volume
