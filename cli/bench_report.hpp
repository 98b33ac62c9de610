// Benchmark results for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_case.hpp"
#include "cli/bench_machine.hpp"

namespace tandem::cli {

// A table on standard output, one line per result, with a heading wherever the axes but the code change.
class BenchTable {
 public:
  void begin(const Machine &machine, const BenchSettings &settings, const tandem_context_info &context);
  void add(const BenchResult &result);

 private:
  std::string heading_;
};

// The whole run as one JSON object; bench/README.md lists the fields.
std::string bench_json(const Machine &machine, const BenchSettings &settings, const tandem_context_info &context,
                       const std::vector<BenchResult> &results);

// A result above the roof says that the roof's loops are too slow: what they allow is 2 %, for noise.
bool above_roof(const BenchResult &result);

}  // namespace tandem::cli
