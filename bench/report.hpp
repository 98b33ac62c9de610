// SPDX-License-Identifier: Apache-2.0
// Benchmark results for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/case.hpp"
#include "bench/machine.hpp"

namespace tandem::bench {

// A table on standard output, one line for each result. A new heading follows a change of any axis but the code.
class BenchTable {
 public:
  // names_contexts: there are several, so each line says which one it is of.
  explicit BenchTable(bool names_contexts) : names_contexts_(names_contexts) {}

  void begin(const MachineFacts &machine, const BenchSettings &settings, const tandem_context_info &context);
  void add(const BenchResult &result);

 private:
  const bool names_contexts_;
  std::string heading_;
};

// The whole run; bench/README.md lists the fields.
nlohmann::ordered_json bench_json(const MachineFacts &machine, const BenchSettings &settings,
                                  const tandem_context_info &context, const std::vector<BenchResult> &results);

// Says whether a result is more than 2 % (noise) above the roof. Then the roof's loops are too slow.
bool above_roof(const BenchResult &result);

}  // namespace tandem::bench
