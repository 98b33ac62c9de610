// Before a run: the CPU alone, a device alone, or all of them together?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hybrid/policy/speed.hpp"

namespace tandem::hybrid {

// One member of a hybrid, with what is known of it in this kind of work.
struct Way {
  Speed together;        // of one lane, in shared runs
  Speed alone;           // of all of it, when it does a whole run by itself
  unsigned lanes = 1;
  bool may_share = true;  // false: it runs on the cores of the CPU, beside which it is no gain
};

inline constexpr std::size_t kTogether = SIZE_MAX;

// Index of the one that does all, or kTogether. Unknown members are worth a try together with the others.
std::size_t choose(std::span<const Way> ways, double bytes);

}  // namespace tandem::hybrid
