// SPDX-License-Identifier: Apache-2.0
#include "cli/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/text.hpp"
#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// The descriptor of this process if `path` is a name in /proc/self/fd, such as /dev/stdout. -1: it is not. `path` may
// not exist.
int descriptor_of(const fs::path &path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
  const std::string name = path.filename().string();
  const auto number = base::number_in<int>(name);
  return !error && number && folder == fmt::format("/proc/{}/fd", getpid()) ? *number : -1;
}

Output writable(const std::string &name, int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    fail(kExitInputOutput, "cannot write to ", name, ": descriptor ", descriptor, " is not open for writing");
  return {.path = "", .descriptor = descriptor};
}

}  // namespace

bool Output::is_standard_output() const {
  struct stat own, standard;
  const int failed = descriptor >= 0 ? fstat(descriptor, &own) : is_special ? stat(path.c_str(), &own) : -1;
  return descriptor == STDOUT_FILENO || (failed == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
                                         own.st_dev == standard.st_dev && own.st_ino == standard.st_ino);
}

Output output_of(const std::string &name) {
  if (name == "-") return writable("standard output", STDOUT_FILENO);
  constexpr int kMostLinks = 40;  // the kernel's limit
  fs::path path = name;
  for (int links = 0;; ++links) {
    if (const int descriptor = descriptor_of(path); descriptor >= 0) return writable(name, descriptor);
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) {
      struct stat status;
      const bool exists = stat(path.c_str(), &status) == 0;
      if (!exists && links > 0)
        fail(kExitInputOutput, name, " is a symbolic link to ", path.string(), ": ", std::strerror(errno));
      const bool special = exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
      return {.path = path.string(), .is_special = special};
    }
    if (links == kMostLinks) fail(kExitInputOutput, name, ": ", kMostLinks, " symbolic links lead to no file");
    path = path.parent_path() / target;  // an absolute target replaces the folder
  }
}

}  // namespace tandem::cli
