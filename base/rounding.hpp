// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

namespace tandem::base {

// a / b, rounded up; b is not 0. It cannot overflow.
template <std::unsigned_integral A, std::unsigned_integral B>
constexpr std::common_type_t<A, B> divide_up(A a, B b) noexcept {
  return a / b + (a % b != 0);
}

// The least multiple that is not below the value; the caller knows that it fits.
template <std::unsigned_integral A, std::unsigned_integral B>
constexpr std::common_type_t<A, B> round_up(A value, B multiple) noexcept {
  return divide_up(value, multiple) * multiple;
}

}  // namespace tandem::base
