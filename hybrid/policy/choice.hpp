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

// The least number of bytes from which on `ways` are worth more than the first of them alone; UINT64_MAX: none is.
std::uint64_t worth_from(std::span<const Way> ways);

}  // namespace tandem::hybrid
