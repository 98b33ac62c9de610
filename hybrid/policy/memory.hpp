// SPDX-License-Identifier: Apache-2.0
// The speeds that a hybrid has learned of its members, kept between runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/backend.hpp"
#include "core/tuning.hpp"
#include "hybrid/policy/choice.hpp"

namespace tandem::hybrid {

// The work that a speed is for: the mode and the shape of the operator. Bytes are those that a run moves: k + m shards.
struct WorkKind {
  core::Mode mode;
  unsigned columns, rows;
  auto operator<=>(const WorkKind &) const = default;

  double moved_per_byte() const noexcept { return static_cast<double>(columns + rows) / columns; }  // of data
};
std::string text_of(const WorkKind &kind);  // "assign 4x10": rows x columns

class Memory {
 public:
  Way way(std::size_t member, const WorkKind &kind) const;

  // After a shared run: the speed that was learned of a lane.
  void keep(std::size_t member, const WorkKind &kind, const Speed &together);
  // A run, or a part of one, that one member did alone.
  void ran_alone(std::size_t member, const WorkKind &kind, double bytes, double seconds);
  void forget_alone(std::size_t member, const WorkKind &kind);

  // The time of all runs of a kind, and of those since a member last did a part of one.
  void add_run(const WorkKind &kind, double seconds) { run_seconds_[kind] += seconds; }
  double idle_seconds(std::size_t member, const WorkKind &kind);
  void took_part(std::size_t member, const WorkKind &kind);

  // Speeds from and for the tuning file. `worker` is the member's name. learned(): entries that are new, or differ by
  // more than a tenth. Those of a device only if latency and speed could be told apart.
  void recall(std::size_t member, const core::SpeedEntry &entry);
  std::vector<core::SpeedEntry> learned(std::size_t member, const std::string &worker, unsigned lanes, bool is_cpu,
                                        const std::vector<core::SpeedEntry> &known) const;

 private:
  struct Speeds {
    Speed together, alone;
    bool was_slow = false;       // its latest run alone, which does not count yet
    double last_at_seconds = 0;  // value of run_seconds_ when it last did a part
  };
  std::map<std::tuple<std::size_t, WorkKind>, Speeds> speeds_;
  std::map<WorkKind, double> run_seconds_;
};

}  // namespace tandem::hybrid
