// SPDX-License-Identifier: Apache-2.0
// The vectors that every x86-64 and 64-bit Arm processor has.
namespace {
constexpr int kWords = 4, kGroups = 2;
}
#include "par2/md5.inc"

namespace tandem::par2 {
extern const Md5Kernel md5_portable;
const Md5Kernel md5_portable = {"portable", kWords, kGroups, run};
}  // namespace tandem::par2
