// SPDX-License-Identifier: Apache-2.0
// Tasks that are split into inner tasks on the cores of a group, beside a GPU: the model of Figure 3 of Mont-Blanc's
// report D4.6 (docs/internals/FIGURE3.md). Policy budget.
#pragma once

#include <string>
#include <vector>

#include "bench/simulate/simulate.hpp"

namespace tandem::bench {

// The part of a task on one core: its parent part or one of its inner tasks. On a single worker: the whole task.
struct BoardSpan {
  unsigned row;  // a core of a group with inner tasks, or another worker
  enum class Part { whole, spawn, inner } part;
  Range range;  // of the data; empty for a parent part
  double start_seconds, end_seconds;
};

// simulation: a worker of bytes_per_second, the sum of member_count equal cores, with inner_count inner tasks per task.
struct BoardResult {
  // One share per worker; busy_seconds of a group is the mean of its cores. One task per chunk, in the order in which
  // the chunks were taken.
  SimulationResult run;
  unsigned row_count = 0;        // member_count rows for a group with inner tasks, one for each other worker
  std::vector<BoardSpan> spans;  // in the order of their start
};

// A group takes a task, and the unit of the budget that it holds until its end, as soon as there is one. After
// latency_seconds its parent part is ready; a core works on it for spawn_seconds. Then inner_count inner tasks are
// ready, each an equal part of the data for one core. If the name has no amount, only its cores
// limit the group: a free core takes the next task at once, without latency. In both cases a free core takes parent
// parts before inner tasks. Every other worker takes one whole task at a time, before the groups choose, the fastest
// first.
//
// Policy budget. Throws Error (INVALID_ARGUMENT) for claims, faults and links.
BoardResult simulate_board(const Simulation &simulation);

}  // namespace tandem::bench
