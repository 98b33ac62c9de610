// SPDX-License-Identifier: Apache-2.0
#include "cli/file_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "tandem/results.hpp"
#include "tandem/tools.h"

namespace tandem::cli {

std::string matrix_name(std::int32_t matrix) {
  const char *name = tandem_matrix_name(matrix);
  return name != nullptr ? name : fmt::format("unknown ({})", matrix);
}

std::string mode_text(std::uint32_t mode) { return mode == UINT32_MAX ? "unknown" : fmt::format("{:04o}", mode); }

const char *state_name(std::int32_t state) {
  constexpr const char *kStates[] = {"intact", "recoverable", "not recoverable"};
  return kStates[state];
}

namespace {

template <class Value>
Json to_json(const Value &value, results::Unit unit) {
  if constexpr (std::is_array_v<Value>) {
    return hexadecimal(value);
  } else if constexpr (sizeof value == sizeof(std::int32_t)) {
    if (unit == results::Unit::matrix) return matrix_name(static_cast<std::int32_t>(value));
    if (unit == results::Unit::mode) return mode_text(static_cast<std::uint32_t>(value));
    if (unit == results::Unit::state) return state_name(static_cast<std::int32_t>(value));
    if (unit == results::Unit::flag) return value != 0;
  }
  return value;
}

}  // namespace

template <class Result>
void put(Json &object, const Result &result) {
  results::each_row(result, [&](const auto &row) {
    if (row.is_everywhere) object[row.name] = to_json(result.*row.member, row.unit);
  });
}
template void put(Json &, const tandem_files_set &);
template void put(Json &, const tandem_files_verify_result &);
template void put(Json &, const tandem_files_repair_result &);

template <class Result>
void Totals<Result>::add(const Result &result) {
  results::each_row(result, [&](const auto &row) {
    if (row.unit == results::Unit::sum) sum.*row.member += result.*row.member;
  });
}
template <class Result>
Json Totals<Result>::json() const {
  Json object;
  results::each_row(sum, [&](const auto &row) {
    if (row.unit == results::Unit::sum) object[row.name] = sum.*row.member;
  });
  return object;
}
template struct Totals<tandem_files_verify_result>;
template struct Totals<tandem_files_repair_result>;

Json report(const char *command, const tandem_files_result &result, const tandem_context_info &info) {
  Json object = {{"command", command}};
  put(object, result);
  const auto data_bytes = static_cast<double>(result.content_bytes);
  object["bytes_per_second"] = result.seconds > 0 ? data_bytes / result.seconds : 0.0;
  object["coding_seconds"] = result.coding_seconds;
  object["backend"] = info.backend;
  object["kernel"] = info.kernel;
  object["executor"] = info.executor;
  object["threads"] = result.thread_count;
  return object;
}

std::string speed(const tandem_files_result &result, const tandem_context_info &info) {
  std::string text = fmt::format("{:.2f} s, {} of data", result.seconds, rate(result.content_bytes, result.seconds));
  if (result.coding_seconds > 0)
    text += fmt::format(" (coding alone: {} a thread)", rate(result.content_bytes, result.coding_seconds));
  return text + fmt::format(", kernel {}, {}", info.kernel, plural(result.thread_count, "thread"));
}

}  // namespace tandem::cli
