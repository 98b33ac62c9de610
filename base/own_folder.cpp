// SPDX-License-Identifier: Apache-2.0
#include "base/own_folder.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/error.hpp"

namespace tandem::base {
namespace {

// The file that is mapped at an address, as the kernel knows it; "" if there is none. The loader's own name may be
// relative to a former working folder.
std::string mapped_file(const void *address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    const char *end = line.data() + line.size();
    const auto first = std::from_chars(line.data(), end, from, 16);
    if (first.ec != std::errc() || first.ptr == end) continue;
    if (std::from_chars(first.ptr + 1, end, to, 16).ec != std::errc()) continue;
    const std::size_t slash = line.find('/');
    if (from <= wanted && wanted < to && slash != std::string::npos) return line.substr(slash);
  }
  return {};
}

}  // namespace

std::string own_folder(const std::string &who) {
  Dl_info info{};
  const void *here = reinterpret_cast<const void *>(&mapped_file);
  std::string file = dladdr(here, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
  if (file.empty() || file.front() != '/') file = mapped_file(here);
  char real[PATH_MAX];
  if (file.empty() || realpath(file.c_str(), real) == nullptr)
    fail(TANDEM_ERROR_UNAVAILABLE, who + ": cannot tell in which folder this library lies (\"" + file + "\")");
  file = real;
  return file.substr(0, file.rfind('/'));
}

std::string module_folder(const std::string &file, const std::string &who) {
  const std::string folder = own_folder(who), installed = folder + "/tandem";
  return access((installed + "/" + file).c_str(), F_OK) == 0 ? installed : folder;
}

}  // namespace tandem::base
