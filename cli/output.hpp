// SPDX-License-Identifier: Apache-2.0
// What `-o` of decode names.
#pragma once

#include <string>

namespace tandem::cli {

struct Output {
  std::string path;         // symbolic links are resolved
  int descriptor = -1;      // >= 0: an open descriptor of this process
  bool is_special = false;  // the path is a device or a named pipe

  bool is_stream() const { return descriptor >= 0 || is_special; }
  bool is_standard_output() const;  // or the same file
};

// name: "-", or a path. /dev/stdout, /dev/fd/N and the like are descriptors. Follows symbolic links. Throws Failure for
// links that lead nowhere.
Output output_of(const std::string &name);

}  // namespace tandem::cli
