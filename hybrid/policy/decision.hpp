// The rule by which work is shared (docs/HYBRID.md): a worker, fast or slow, may take a chunk only if it will be
// through with it before everything else is. A pure function of what is known now; the same in virtual time and for
// real.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

namespace tandem::hybrid {

// One worker as the rule sees it. Times are seconds from now; bytes are doubles, since shares are.
struct Candidate {
  double bytes_per_second;     // the best guess, > 0
  double latency_seconds = 0;  // that each task costs before its first byte
  double uncertainty = 0;      // how far off a task's time may be, as a part of it
  double knee_bytes = 0;       // a smaller chunk is mostly fixed cost
  double free_in_seconds = 0;  // when it will be through with what it has; 0 = idle, infinity = it does not answer
  double most_bytes = std::numeric_limits<double>::infinity();  // that it is trusted with while its speed is learned
};

// When `unassigned` bytes would be done, from now, if every candidate took its fair share as soon as it is free: the
// time t at which the sum of speed * (t - free_in - latency), where that is positive, reaches them. Infinity without
// candidates.
double predicted_finish(std::span<const Candidate> candidates, double unassigned_bytes);

// What candidate `index`, which is idle, takes of the unassigned bytes; 0 = it leaves them to the others. Never 0 for
// all candidates as long as one of them is idle and none has work.
double chunk_for(std::span<const Candidate> candidates, std::size_t index, double unassigned_bytes);

}  // namespace tandem::hybrid
