// How long it takes to prepare a decode for a loss that was never seen before.
#pragma once

#include "cli/bench_case.hpp"

namespace tandem::cli {

BenchResult run_decode_setup(const BenchCase &at, const BenchSettings &settings);

}  // namespace tandem::cli
