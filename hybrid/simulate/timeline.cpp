#include "hybrid/simulate/timeline.hpp"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"

namespace tandem::hybrid {
namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kProcess = 1;  // the only one of the trace

struct Sum {
  std::uint64_t bytes = 0, task_count = 0;
  double busy_seconds = 0, last_end_seconds = 0;
};

Json metadata(const char *what, unsigned thread, const std::string &name) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event(const TimelineSpan &span) {
  constexpr double kMicroseconds = 1e6;
  return {
      {"name", span.what},
      {"cat", span.committed ? "committed" : "lost"},
      {"ph", "X"},
      {"pid", kProcess},
      {"tid", span.worker},
      {"ts", span.start_seconds * kMicroseconds},
      {"dur", (span.end_seconds - span.start_seconds) * kMicroseconds},
      {"args",
       {{"begin", span.range.begin}, {"end", span.range.end}, {"bytes", span.bytes}, {"committed", span.committed}}}};
}

}  // namespace

std::string timeline_json(std::span<const std::string> worker_names, std::span<const TimelineSpan> spans,
                          double makespan_seconds, double efficiency) {
  std::vector<Sum> sums(worker_names.size());
  Json events = Json::array();
  events.push_back(metadata("process_name", 0, "tandem"));
  for (unsigned i = 0; i < worker_names.size(); ++i) {
    events.push_back(metadata("thread_name", i, worker_names[i]));
    // Without it they are shown in the order of their names.
    events.push_back(
        {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", kProcess}, {"tid", i}, {"args", {{"sort_index", i}}}});
  }
  std::uint64_t all_bytes = 0;
  for (const TimelineSpan &span : spans) {
    events.push_back(event(span));
    Sum &sum = sums[span.worker];
    ++sum.task_count;
    sum.busy_seconds += span.end_seconds - span.start_seconds;
    sum.last_end_seconds = std::max(sum.last_end_seconds, span.end_seconds);
    if (!span.committed) continue;
    sum.bytes += span.bytes;
    all_bytes += span.bytes;
  }
  Json workers = Json::array();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Sum &sum = sums[i];
    const double share = all_bytes > 0 ? static_cast<double>(sum.bytes) / static_cast<double>(all_bytes) : 0;
    workers.push_back({{"name", worker_names[i]},
                       {"bytes", sum.bytes},
                       {"share", share},
                       {"tasks", sum.task_count},
                       {"busy_seconds", sum.busy_seconds},
                       {"idle_seconds", std::max(makespan_seconds - sum.busy_seconds, 0.0)},
                       {"idle_tail_seconds", std::max(makespan_seconds - sum.last_end_seconds, 0.0)}});
  }
  const Json trace = {{"traceEvents", std::move(events)},
                      {"displayTimeUnit", "ms"},
                      {"otherData",
                       {{"makespan_seconds", makespan_seconds},
                        {"efficiency", efficiency},
                        {"bytes", all_bytes},
                        {"workers", std::move(workers)}}}};
  // Names of devices may be no UTF-8.
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_timeline(const std::string &path, std::string_view json) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(json.data(), static_cast<std::streamsize>(json.size()));
  file.close();
  if (!file) base::fail(TANDEM_ERROR_IO, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace tandem::hybrid
