// SPDX-License-Identifier: Apache-2.0
// What a run costs in joules: the energy counters of Linux and of NVIDIA's driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.hpp"

namespace tandem::bench {

// A counter of one part of the machine.
class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  virtual const std::string &name() const = 0;  // "package-0", "package-0/dram", "energy-pkg of CPU 0", "GPU 0"
  // Since it was opened. A counter that wraps around may do so once between two calls. Throws std::runtime_error.
  virtual double joules() = 0;
};

struct EnergyMeters {
  std::vector<std::unique_ptr<EnergyMeter>> list;  // those of the CPU first
  std::string reason;                              // why there is none of the CPU; "" if there is one
};

// Meters of the CPU's packages and their memory: powercap (RAPL) below the sysfs folder, else the perf events "power".
// GPUs: NVML, if its library is there. core and uncore are parts of a package, and psys contains all packages: these
// are omitted.
EnergyMeters open_energy_meters(const std::string &sysfs);

// Pearson's r of two lists of the same length, and its 95 % interval by Fisher's transformation (R. A. Fisher, Metron
// 1, 1921). All 0 if one of the two does not vary or there are fewer than 4 values.
struct Correlation {
  double r = 0, low = 0, high = 0;
};
Correlation correlation_of(const std::vector<double> &xs, const std::vector<double> &ys);

struct EnergyOfDomain {
  std::string name;
  bool moves = false;  // false: the counter stands still, and the rest means nothing
  double idle_watts = 0;
  std::vector<double> joules;  // of a call, without the energy of the idle machine; by sample
  Correlation with_time;       // of a sample's energy, the idle machine's included, with its time
};

// Runs the contestant in at least 30 samples of at least 50 ms (a RAPL counter moves once a millisecond), after a pause
// of idle_seconds. Without meters nothing runs. Throws std::runtime_error if a counter cannot be read any more.
std::vector<EnergyOfDomain> measure_energy(EnergyMeters &meters, const Contestant &contestant, unsigned samples,
                                           double seconds_per_call, double idle_seconds);

}  // namespace tandem::bench
