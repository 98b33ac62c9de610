// SPDX-License-Identifier: Apache-2.0
// Sanitizers make code 5 to 20 times as slow, and find kinds of mistakes. So they test every n-th case of tests that
// test every case in other builds.
#pragma once

#include <cstdint>

namespace tandem::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr unsigned kThinning = 4;
#else
inline constexpr unsigned kThinning = 1;
#endif

constexpr std::uint64_t thinned(std::uint64_t count) { return count / kThinning; }

}  // namespace tandem::test
