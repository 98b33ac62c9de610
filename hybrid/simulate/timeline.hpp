// Who did which range when, as a trace that Perfetto and chrome://tracing open (docs/HYBRID.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hybrid/policy/ranges.hpp"

namespace tandem::hybrid {

struct TimelineSpan {
  unsigned worker;
  std::string what;  // for people: "encode"
  Range range;
  std::uint64_t bytes;  // of data; they count for the worker if they were committed
  double start_seconds, end_seconds;
  bool committed;  // false: others had done it before, or it came to nothing
};

// One thread of the trace per worker, one event per span; under otherData what each worker did, and how long it was
// idle. Workers are named in the order of their numbers.
std::string timeline_json(std::span<const std::string> worker_names, std::span<const TimelineSpan> spans,
                          double makespan_seconds, double efficiency);

// Throws Error (IO).
void write_timeline(const std::string &path, std::string_view json);

}  // namespace tandem::hybrid
