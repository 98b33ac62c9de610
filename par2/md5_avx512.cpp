// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f; only called where the CPU has it.
namespace {
constexpr int kWords = 16, kGroups = 2;
}
#include "par2/md5.inc"

namespace tandem::par2 {
extern const Md5Kernel md5_avx512;
const Md5Kernel md5_avx512 = {"avx512", kWords, kGroups, run};
}  // namespace tandem::par2
