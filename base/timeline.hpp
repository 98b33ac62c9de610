// Which worker did which piece of work when, for people to look at: written as a trace that Perfetto opens
// (docs/TIMELINE.md).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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
  bool committed = true;  // false: another worker was first, or the piece failed; the bytes do not count
  bool is_coding = true;  // false: reading, hashing, writing. It has a colour of its own, and bytes that do not count
                          // for the worker's share
};

// Writes spans as they are: explicit rows, times from 0 on. Throws Error (IO).
void write_timeline(const std::string &file, std::span<const TimelineRow> rows, std::span<const TimelineSpan> spans,
                    double makespan_seconds, std::optional<double> efficiency);

// Records what the workers of a context do. Any thread may call; a forked child records and writes nothing.
class Timeline {
 public:
  using Span = TimelineSpan;
  static constexpr std::size_t kMostSpans = 1'000'000;

  explicit Timeline(std::string file, const Log &log, std::size_t most_spans = kMostSpans);

  // The same name is the same row; its kind is that of the first call. kNoRow where memory has run out.
  static constexpr unsigned kNoRow = UINT32_MAX;
  unsigned row(std::string_view name, std::string_view kind) noexcept;
  // "cpu, caller 0": one for each thread of that kind. The role is that of the thread's first call.
  unsigned row_of_this_thread(std::string_view kind, std::string_view role = "caller") noexcept;

  // Times are of the steady clock. `what` is copied. Spans beyond the limit are left out, and the log hears it once.
  void add(const Span &span) noexcept;

  // How well the work was shared, where that can be said: 1 = no worker could have ended sooner with other shares.
  void set_efficiency(double efficiency) noexcept;

  // All spans so far, on an axis that begins with the first one. A failure goes to the log.
  void write() noexcept;

  static double now() noexcept;  // seconds of the steady clock

 private:
  bool is_of_this_process() const noexcept { return generation_ == fork_generation(); }
  unsigned find_or_add(std::string_view name, std::string_view kind);
  void say_full() noexcept;

  const std::string file_;
  const Log log_;
  const std::size_t most_spans_;
  const std::uint32_t generation_ = fork_generation();

  std::mutex mutex_;
  std::vector<TimelineRow> rows_;
  std::map<std::string, unsigned, std::less<>> row_of_name_;
  std::map<std::pair<std::thread::id, std::string>, unsigned> row_of_thread_;  // and kind
  std::map<std::string, unsigned, std::less<>> thread_count_;                  // by "cpu, caller"
  std::set<std::string, std::less<>> whats_;                                   // what the spans point to
  std::vector<Span> spans_;
  std::optional<double> efficiency_;
  bool is_full_ = false;
};

}  // namespace tandem::base
