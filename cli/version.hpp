// SPDX-License-Identifier: Apache-2.0
// What --version prints: version, build, kernel, backends.
#pragma once

#include <string>

namespace tandem::cli {

// with_backends: asks the drivers of devices.
std::string version_text(const std::string &program, bool with_backends);

}  // namespace tandem::cli
