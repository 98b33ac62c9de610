// SPDX-License-Identifier: Apache-2.0
#include "cli/file_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "tandem/tools.h"

namespace tandem::cli {

std::string matrix_name(std::int32_t matrix) {
  const char *name = tandem_matrix_name(matrix);
  return name != nullptr ? name : fmt::format("unknown ({})", matrix);
}

nlohmann::ordered_json report(const char *command, const tandem_files_result &result, const tandem_context_info &info) {
  const double data_bytes = static_cast<double>(result.content_bytes);
  return {{"command", command},
          {"set_id", hexadecimal(result.set_id)},
          {"digest", hexadecimal(result.digest)},
          {"k", result.k},
          {"m", result.m},
          {"matrix", matrix_name(result.matrix)},
          {"block_bytes", result.block_bytes},
          {"content_bytes", result.content_bytes},
          {"stripe_count", result.stripe_count},
          {"read_bytes", result.read_bytes},
          {"written_bytes", result.written_bytes},
          {"seconds", result.seconds},
          {"bytes_per_second", result.seconds > 0 ? data_bytes / result.seconds : 0.0},
          {"coding_seconds", result.coding_seconds},
          {"backend", info.backend},
          {"kernel", info.kernel},
          {"executor", info.executor},
          {"threads", result.thread_count}};
}

std::string speed(const tandem_files_result &result, const tandem_context_info &info) {
  std::string text = fmt::format("{:.2f} s, {} of data", result.seconds, rate(result.content_bytes, result.seconds));
  if (result.coding_seconds > 0)
    text += fmt::format(" (coding alone: {} a thread)", rate(result.content_bytes, result.coding_seconds));
  return text + fmt::format(", kernel {}, {}", info.kernel, plural(result.thread_count, "thread"));
}

}  // namespace tandem::cli
