// SPDX-License-Identifier: Apache-2.0
#include "base/hash_template.hpp"

namespace tandem::base {
extern const HashFunctions hash_portable;
const HashFunctions hash_portable = kFunctions;
}  // namespace tandem::base
