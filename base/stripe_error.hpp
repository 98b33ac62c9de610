// SPDX-License-Identifier: Apache-2.0
// Errors of calls with many stripes.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.hpp"

namespace tandem::base {

// The same error, with the number of the stripe.
[[noreturn]] inline void fail_in_stripe(const Error &error, std::size_t index, std::size_t stripe_count) {
  fail(error.status(), "stripe " + std::to_string(index) + " of " + std::to_string(stripe_count) + ": " + error.what());
}

}  // namespace tandem::base
