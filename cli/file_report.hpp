// SPDX-License-Identifier: Apache-2.0
// Results of files.h as JSON, by the tables of tandem/results.hpp, and as text.
#pragma once

#include <string>

#include "cli/commands.hpp"

namespace tandem::cli {

std::string matrix_name(std::int32_t matrix);
std::string mode_text(std::uint32_t mode);   // "0644", "unknown"
const char *state_name(std::int32_t state);  // of enum tandem_files_state_value

// Sets the keys of a result or set. A key that is there keeps its place.
template <class Result>
void put(Json &object, const Result &result);

// The sum of the results of verify or repair over several sets.
template <class Result>
struct Totals {
  Result sum = {};

  void add(const Result &result);
  Json json() const;
};

Json report(const char *command, const tandem_files_result &result, const tandem_context_info &info);
// "0.41 s, 2.62 GB/s of data (coding 24.10 GB/s a thread), kernel avx512-gfni, 2 threads"
std::string speed(const tandem_files_result &result, const tandem_context_info &info);

}  // namespace tandem::cli
