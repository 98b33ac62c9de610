// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; only called where the CPU has it.
#include "base/hash_template.hpp"

namespace tandem::base {
extern const HashFunctions hash_avx2;
const HashFunctions hash_avx2 = kFunctions;
}  // namespace tandem::base
