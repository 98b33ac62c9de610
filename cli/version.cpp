// SPDX-License-Identifier: Apache-2.0
#include "cli/version.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "tandem/tools.h"
#include "tandem_describe.h"  // TANDEM_DESCRIBE, written by cmake/TandemDescribe.cmake at each build

namespace tandem::cli {
namespace {

#ifdef __clang__
constexpr const char *kCompiler = "clang " __clang_version__;
#else
constexpr const char *kCompiler = "GCC " __VERSION__;
#endif

#if defined(__x86_64__)
constexpr const char *kProcessor = "x86-64";
#elif defined(__aarch64__)
constexpr const char *kProcessor = "64-bit Arm";
#else
constexpr const char *kProcessor = "other processor";
#endif

std::string backends_text() {
  std::string text;
  std::size_t count = 0;
  check(tandem_devices(nullptr, 0, sizeof(tandem_device), &count));
  std::vector<tandem_device> devices(count);
  check(tandem_devices(devices.data(), devices.size(), sizeof(tandem_device), &count));
  devices.resize(std::min(devices.size(), count));
  for (const tandem_device &each : devices) text += fmt::format("{}{}", text.empty() ? "" : ", ", each.name);
  check(tandem_missing_devices(nullptr, 0, sizeof(tandem_missing_device), &count));
  std::vector<tandem_missing_device> missing(count);
  check(tandem_missing_devices(missing.data(), missing.size(), sizeof(tandem_missing_device), &count));
  missing.resize(std::min(missing.size(), count));
  for (const tandem_missing_device &each : missing)
    text += fmt::format("\n          no {}: {}", each.backend, each.reason);
  return text;
}

// The best kernel that this CPU runs.
std::string kernel_text() {
  std::size_t count = 0;
  check(tandem_kernels(nullptr, 0, sizeof(tandem_kernel), &count));
  std::vector<tandem_kernel> kernels(count);
  check(tandem_kernels(kernels.data(), kernels.size(), sizeof(tandem_kernel), &count));
  for (const tandem_kernel &each : kernels)
    if (each.available != 0) return each.name;
  return "none";
}

}  // namespace

std::string version_text(const std::string &program, bool with_backends) {
  const std::string_view describe = TANDEM_DESCRIBE;
  return fmt::format("{} {}{}\nbuild     {}, {}\nkernel    {}{}", program, tandem_version_string(),
                     describe.empty() ? "" : fmt::format(" ({})", describe), kCompiler, kProcessor, kernel_text(),
                     with_backends ? "\nbackends  " + backends_text() : "");
}

}  // namespace tandem::cli
