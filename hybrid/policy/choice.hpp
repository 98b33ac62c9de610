// Before a run: the CPU alone, a device alone, or all of them together?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

// One member of a hybrid, with what is known of it in this kind of work.
struct Way {
  Speed together;  // of one lane, in shared runs
  Speed alone;     // of all its lanes, when it does a whole run by itself
  unsigned lanes = 1;
  bool may_share = true;  // false: it computes on the cores of the CPU, beside which it is no gain

  bool is_seen() const noexcept { return together.is_seen() || alone.is_seen(); }
};

inline constexpr std::size_t kTogether = SIZE_MAX;

// Index of the one that does all, or kTogether. Members of which nothing is known are tried together with the others;
// those that may not share have to be tried before.
std::size_t choose(std::span<const Way> ways, double bytes);

// How much of a run a member that is not chosen does by itself, to find out whether it became faster: 0 until the runs
// since its last trial took so long that this one slows them down by 1 % at most. What the trial computes takes no
// longer than the latency, or than the run by the best one, `best_seconds`.
double trial_bytes(const Speed &alone, double bytes, double best_seconds, double since_seconds);

// The least number of bytes from which on `ways` are worth more than the first of them alone; UINT64_MAX: none is.
std::uint64_t worth_from(std::span<const Way> ways);

}  // namespace tandem::hybrid
