// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; only called where the CPU has it.
namespace {
constexpr int kWords = 8, kGroups = 2;
}
#include "par2/md5.inc"

namespace tandem::par2 {
extern const Md5Kernel md5_avx2;
const Md5Kernel md5_avx2 = {"avx2", kWords, kGroups, run};
}  // namespace tandem::par2
