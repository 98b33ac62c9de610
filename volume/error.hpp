// SPDX-License-Identifier: Apache-2.0
// Errors of the volume.
#pragma once

#include "base/gate.hpp"
#include "base/options.hpp"
#include "base/text.hpp"

namespace tandem::volume {

using base::check;
using base::Error;
using base::fail;
using base::guarded;
using base::sized;
using base::text;

}  // namespace tandem::volume
