// SPDX-License-Identifier: Apache-2.0
// The text of a tuning file (docs/tuning.md), for tests of the C API.
#pragma once

#include <string>

namespace tandem::test {

inline const std::string kTuningHeader =
    "tandem_tuning_2\tbackend\tvendor\tdevice\tdriver\tkernel_hash\tmemory\toperation\tk\tm\tlanes\tvalues\t"
    "bytes_per_second\tdefault_bytes_per_second\tlatency_seconds\t"
    "shard_bytes\trepeats\tsearched\tdate\n";

// What a hybrid learned of an encode of 10+4, for each of two lanes.
inline std::string speed_row(const std::string &worker, const std::string &machine, double bytes_per_second,
                             double latency_seconds) {
  return "speed\t" + worker + "\t\t" + machine + "\t\t\t\tencode\t10\t4\t2\t\t" + std::to_string(bytes_per_second) +
         "\t\t" + std::to_string(latency_seconds) + "\t\t\t\t2025-11-21T16:55:20Z\n";
}

}  // namespace tandem::test
