// SPDX-License-Identifier: Apache-2.0
#include "files/hash_template.hpp"

namespace tandem::files {
extern const HashFunctions hash_portable;
const HashFunctions hash_portable = kFunctions;
}  // namespace tandem::files
