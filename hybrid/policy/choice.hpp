// SPDX-License-Identifier: Apache-2.0
// Decides before a run: the CPU alone, a device alone, or all members together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

// One member of a hybrid, with its known speeds in this kind of work.
struct Way {
  Speed together;  // of one lane, in shared runs
  Speed alone;     // of all its lanes, when it does a whole run by itself
  unsigned lanes = 1;
  bool may_share = true;  // false: it computes on the cores of the CPU, so sharing with the CPU gains nothing

  bool is_seen() const noexcept { return together.is_seen() || alone.is_seen(); }
};

inline constexpr std::size_t kTogether = SIZE_MAX;

// Index of the member that does the whole run, or kTogether. A member of unknown speed is tried together with the
// others. Members that may not share must be tried before this.
std::size_t choose(std::span<const Way> ways, double bytes);

// The expected time of a run that one member of known speed does by itself.
double alone_seconds(const Way &way, double bytes);

// The bytes of a trial: the part of a run that an idle member does alone, to measure whether it became faster. 0 if the
// trial would take more than 1 % of `since_seconds`, the time of the runs since this member last did any work. A trial
// computes for as long as the best member needs for the run, `best_seconds`, but for 10 ms at most; or for its own
// latency, if that is longer. A shorter trial would measure only the latency.
double trial_bytes(const Way &way, double bytes, double best_seconds, double since_seconds);

// The least number of bytes for which `ways` are faster than the first of them alone; UINT64_MAX: there is none.
std::uint64_t worth_from(std::span<const Way> ways);

}  // namespace tandem::hybrid
