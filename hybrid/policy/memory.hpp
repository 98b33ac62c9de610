// SPDX-License-Identifier: Apache-2.0
// The speeds that a hybrid has learned of its members, kept between runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "core/tuning.hpp"
#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

// The work that a speed is for: the mode and the shape of the operator. Bytes are those that a run moves: k + m shards.
struct WorkKind {
  core::Mode mode;
  unsigned columns, rows;
  auto operator<=>(const WorkKind &) const = default;

  double moved_per_byte() const noexcept { return static_cast<double>(columns + rows) / columns; }  // of data
};

// Speeds of one member's lane, by kind of work. The CPU has one lane.
class Memory {
 public:
  Speed speed(const WorkKind &kind) const;
  void keep(const WorkKind &kind, const Speed &speed);

  // From and for the tuning file. A row has data bytes per second of one lane. learned(): what is new, or
  // differs by more than a tenth. Of a device only if latency and speed could be told apart.
  void recall(const core::SpeedEntry &entry, bool is_cpu);
  std::vector<core::SpeedEntry> learned(const std::string &worker, unsigned lanes, bool is_cpu,
                                        const std::vector<core::SpeedEntry> &known) const;

 private:
  std::map<WorkKind, Speed> speeds_;
};

}  // namespace tandem::hybrid
