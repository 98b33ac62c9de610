// Benchmark results for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/case.hpp"
#include "bench/machine.hpp"

namespace tandem::bench {

// A table on standard output, one line per result, with a heading wherever the axes but the code change.
class BenchTable {
 public:
  void begin(const MachineFacts &machine, const BenchSettings &settings, const tandem_context_info &context);
  void add(const BenchResult &result);

 private:
  std::string heading_;
};

// The whole run; bench/README.md lists the fields.
nlohmann::ordered_json bench_json(const MachineFacts &machine, const BenchSettings &settings,
                                  const tandem_context_info &context, const std::vector<BenchResult> &results);

// A result above the roof says that the roof's loops are too slow: what they allow is 2 %, for noise.
bool above_roof(const BenchResult &result);

}  // namespace tandem::bench
