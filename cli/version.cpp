// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "cli/program.hpp"
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
  for (const tandem_device &each : all<tandem_device>(tandem_devices))
    if (*each.missing != 0)
      text += fmt::format("\n          no {}: {}", each.name, each.missing);
    else
      text += fmt::format("{}{}", text.empty() ? "" : ", ", each.name);
  return text;
}

// The best kernel that this CPU runs.
std::string kernel_text() {
  for (const tandem_kernel &each : all<tandem_kernel>(tandem_kernels))
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
