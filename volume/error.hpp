// SPDX-License-Identifier: Apache-2.0
// Errors of the volume.
#pragma once

#include "client/error.hpp"

namespace tandem::volume {

using client::check;
using client::Error;
using client::fail;
using client::guarded;

}  // namespace tandem::volume
