// SPDX-License-Identifier: Apache-2.0
// Records which worker did which piece of work when, as a trace that Perfetto opens (docs/internals/TIMELINE.md).
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fork.hpp"
#include "base/log.hpp"

namespace tandem::base {

// A row of the picture: one worker, such as a thread or a lane of a device.
struct TimelineRow {
  std::string name;
  std::string kind;  // "cpu", "opencl", "cuda": one colour each
};

// A box in a row.
struct TimelineSpan {
  unsigned row;
  std::string_view what;     // for people: "assign 4x10", "read"
  std::uint64_t begin, end;  // of the work that it belongs to: the range of bytes
  std::uint64_t bytes;       // of data
  double start_seconds, end_seconds;
  bool committed = true;  // false: another worker was faster, or the piece failed; the bytes do not count
  bool is_coding = true;  // false: reading, hashing, writing. Such a span has a colour of its own, and its bytes do not
                          // count for the worker's share
};

// Writes spans as they are: explicit rows, times from 0 on. Throws Error (IO).
void write_timeline(const std::string &file, std::span<const TimelineRow> rows, std::span<const TimelineSpan> spans,
                    double makespan_seconds, std::optional<double> efficiency);

// Records the work of a context's workers. Any thread may call; a forked child records and writes nothing.
class Timeline {
 public:
  using Span = TimelineSpan;
  static constexpr std::size_t kMostSpans = 1'000'000;

  explicit Timeline(std::string file, const Log &log, std::size_t most_spans = kMostSpans);

  // The same name gives the same row. The first call sets its kind. kNoRow if memory has run out.
  static constexpr unsigned kNoRow = UINT32_MAX;
  unsigned row(std::string_view name, std::string_view kind) noexcept;
  // "cpu, caller 0": one for each thread and kind. A thread keeps the number and the role of its first call.
  unsigned row_of_this_thread(std::string_view kind, std::string_view role = "caller") noexcept;

  // Times are of the steady clock. `what` is copied. Spans beyond the limit are dropped, and the log says so once.
  void add(const Span &span) noexcept;

  // Throws Error (IO) if the file cannot be written: before the work, not after it.
  void check_file() const;

  // Writes all spans so far, on an axis that begins with the first one. A failure goes to the log.
  void write() noexcept;

  static double now() noexcept;  // seconds of the steady clock

 private:
  bool is_of_this_process() const noexcept { return generation_ == fork_generation(); }
  unsigned find_or_add(std::string_view name, std::string_view kind);

  const std::string file_;
  const Log log_;
  const std::size_t most_spans_;
  const std::uint32_t generation_ = fork_generation();

  std::mutex mutex_;
  std::vector<TimelineRow> rows_;
  std::map<std::string, unsigned, std::less<>> row_of_name_;
  std::map<std::thread::id, std::string> name_of_thread_;      // "caller 0"
  std::map<std::string, unsigned, std::less<>> thread_count_;  // by role
  std::set<std::string, std::less<>> whats_;                   // what the spans point to
  std::vector<Span> spans_;
  bool is_full_ = false;
};

// The timeline of a context; null: none. api/, which knows contexts, sets this when the library is loaded.
using TimelineOf = Timeline *(*)(const tandem_context *context) noexcept;
inline constinit TimelineOf timeline_of = [](const tandem_context *) noexcept -> Timeline * { return nullptr; };

// Records other work than coding, such as "read", as one span on the calling thread's row. The span begins here and
// ends with this object. Its bytes do not count if an exception ends it. Without a timeline it costs one comparison.
// Keeps `what`.
class TimedStep {
 public:
  TimedStep(Timeline *timeline, std::string_view what, std::uint64_t begin, std::uint64_t end) noexcept
      : timeline_(timeline) {
    if (timeline_ == nullptr) return;
    span_ = {0, what, begin, end, 0, Timeline::now(), 0, true, false};
    exception_count_ = std::uncaught_exceptions();
  }
  ~TimedStep() {
    if (timeline_ != nullptr) record();
  }
  TimedStep(const TimedStep &) = delete;
  TimedStep &operator=(const TimedStep &) = delete;

  void add_bytes(std::uint64_t bytes) noexcept { span_.bytes += bytes; }

 private:
  void record() noexcept;

  Timeline *timeline_;
  TimelineSpan span_ = {};
  int exception_count_ = 0;
};

}  // namespace tandem::base
