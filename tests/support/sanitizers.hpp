// SPDX-License-Identifier: Apache-2.0
// Limits of the sanitizers of GCC 12, in one place.
#pragma once

namespace tandem::test {

#if defined(__has_feature)  // clang
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#endif

// Skips the rest of a test that forks while the process has other threads. A thread that starts or goes to sleep
// allocates; the address sanitizer does not take its allocator's locks over a fork, so the child may wait for ever in
// SizeClassAllocator64::GetFromAllocator (5 of 100 runs of fork_test on a loaded machine, seen in gdb).
#define TANDEM_SKIP_FORK_BESIDE_THREADS() \
  if (::tandem::test::kAddressSanitizer)  \
  GTEST_SKIP() << "NOT RUN: the address sanitizer forks with its allocator's locks as other threads hold them"

}  // namespace tandem::test
