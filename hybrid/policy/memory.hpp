// SPDX-License-Identifier: Apache-2.0
// The speeds that a hybrid has learned of its members, kept between runs.
#pragma once

#include <map>

#include "core/backend.hpp"
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
  Speed speed(const WorkKind &kind) const {
    const auto found = speeds_.find(kind);
    return found != speeds_.end() ? found->second : Speed();
  }
  void keep(const WorkKind &kind, const Speed &speed) {
    if (speed.is_seen()) speeds_[kind] = speed;
  }

 private:
  std::map<WorkKind, Speed> speeds_;
};

}  // namespace tandem::hybrid
