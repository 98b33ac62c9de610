// What `-o` of decode names.
#pragma once

#include <string>

namespace tandem::cli {

struct Output {
  std::string path;         // no symbolic link any more
  int descriptor = -1;      // >= 0: one of this process, to be written to as it is
  bool is_special = false;  // the path is a device or a named pipe

  bool is_stream() const { return descriptor >= 0 || is_special; }
  bool is_standard_output() const;  // or the same file
};

// "-", or a path; /dev/stdout, /dev/fd/N and their like are descriptors. Follows symbolic links. Throws Failure where
// they lead nowhere.
Output output_of(const std::string &name);

}  // namespace tandem::cli
