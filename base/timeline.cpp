// SPDX-License-Identifier: Apache-2.0
#include "base/timeline.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"

namespace tandem::base {
namespace {

struct Sum {
  std::uint64_t bytes = 0, task_count = 0;
  double busy_seconds = 0, last_end_seconds = 0;

  void add(const TimelineSpan &span) noexcept {
    ++task_count;
    busy_seconds += span.end_seconds - span.start_seconds;
    last_end_seconds = std::max(last_end_seconds, span.end_seconds);
  }
};

// Of values that are JSON already.
std::string object(std::initializer_list<std::pair<std::string_view, std::string>> members) {
  std::string whole = "{";
  for (const auto &[name, value] : members) whole += text(whole.size() == 1 ? "\"" : ",\"", name, "\":", value);
  return whole + '}';
}

// Viewers show the rows in the order of sort_index.
std::string metadata(unsigned row, std::string_view name) {
  const auto line = [row](const char *what, const std::string &arguments) {
    return object({{"name", json_text(what)}, {"ph", "\"M\""}, {"pid", "1"}, {"tid", text(row)}, {"args", arguments}});
  };
  return text(line("thread_name", object({{"name", json_text(name)}})), ",",
              line("thread_sort_index", object({{"sort_index", text(row)}})));
}

// Gives the span its colour.
std::string_view kind_of(const TimelineSpan &span, const TimelineRow &row) noexcept {
  return span.is_coding ? std::string_view(row.kind) : span.what;
}

std::string event(const TimelineSpan &span, const TimelineRow &row) {
  constexpr double kMicroseconds = 1e6;
  return object({{"name", json_text(span.what)},
                 {"cat", json_text(kind_of(span, row))},
                 {"ph", "\"X\""},
                 {"pid", "1"},
                 {"tid", text(span.row)},
                 {"ts", text(span.start_seconds * kMicroseconds)},
                 {"dur", text((span.end_seconds - span.start_seconds) * kMicroseconds)},
                 {"args", object({{"begin", text(span.begin)},
                                  {"end", text(span.end)},
                                  {"bytes", text(span.bytes)},
                                  {"committed", text(span.committed)}})}});
}

// The work of each worker, and totals of each kind of work.
std::string summary(std::span<const TimelineRow> rows, std::span<const TimelineSpan> spans, double makespan_seconds,
                    std::optional<double> efficiency) {
  std::vector<Sum> of_rows(rows.size());
  std::map<std::string_view, Sum> of_kinds;
  std::uint64_t coded_bytes = 0;
  for (const TimelineSpan &span : spans) {
    Sum &of_kind = of_kinds[kind_of(span, rows[span.row])];
    of_kind.add(span);
    of_rows[span.row].add(span);
    if (!span.committed) continue;
    of_kind.bytes += span.bytes;
    if (!span.is_coding) continue;
    of_rows[span.row].bytes += span.bytes;
    coded_bytes += span.bytes;
  }
  std::string workers, kinds;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Sum &sum = of_rows[i];
    const double share = coded_bytes > 0 ? static_cast<double>(sum.bytes) / static_cast<double>(coded_bytes) : 0;
    workers += text(i == 0 ? "" : ",",
                    object({{"name", json_text(rows[i].name)},
                            {"kind", json_text(rows[i].kind)},
                            {"bytes", text(sum.bytes)},
                            {"share", text(share)},
                            {"tasks", text(sum.task_count)},
                            {"busy_seconds", text(sum.busy_seconds)},
                            {"idle_seconds", text(std::max(makespan_seconds - sum.busy_seconds, 0.0))},
                            {"idle_tail_seconds", text(std::max(makespan_seconds - sum.last_end_seconds, 0.0))}}));
  }
  for (const auto &[kind, sum] : of_kinds)
    kinds += text(kinds.empty() ? "" : ",", object({{"kind", json_text(kind)},
                                                    {"bytes", text(sum.bytes)},
                                                    {"tasks", text(sum.task_count)},
                                                    {"busy_seconds", text(sum.busy_seconds)}}));
  // Without an efficiency the key is missing.
  const std::string known = efficiency ? text(",\"efficiency\":", json_text(*efficiency)) : "";
  return object({{"makespan_seconds", text(makespan_seconds, known)},
                 {"bytes", text(coded_bytes)},
                 {"workers", text("[", workers, "]")},
                 {"kinds", text("[", kinds, "]")}});
}

// A new file, or a device or pipe. Of existing files only one that this process made: several contexts may name it.
Descriptor make_new(const std::string &path) {
  static std::mutex mutex;
  static std::set<std::pair<dev_t, ino_t>> made;
  const std::lock_guard lock(mutex);
  constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  struct stat status;
  Descriptor file(open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666));
  if (!file && errno == EEXIST && stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    const bool is_own = made.contains({status.st_dev, status.st_ino});
    if (S_ISREG(status.st_mode) && !is_own) fail(TANDEM_ERROR_IO, path, " exists; use --force to replace it");
    file = Descriptor(open(path.c_str(), kFlags | (is_own ? O_TRUNC : 0)));
  }
  if (!file || fstat(file.get(), &status) != 0)
    fail(TANDEM_ERROR_IO, "cannot write ", path, ": ", std::strerror(errno));
  if (S_ISREG(status.st_mode)) made.emplace(status.st_dev, status.st_ino);
  return file;
}

}  // namespace

void write_timeline(const std::string &path, std::span<const TimelineRow> rows, std::span<const TimelineSpan> spans,
                    double makespan_seconds, std::optional<double> efficiency) {
  const Descriptor file = make_new(path);
  constexpr std::size_t kMostWaitingBytes = 1 << 20;
  std::string waiting;
  const auto put = [&](std::size_t most_waiting_bytes, const auto &...parts) {
    (waiting.append(parts), ...);
    if (waiting.size() <= most_waiting_bytes) return;
    for (std::size_t done = 0; done < waiting.size();) {  // not at an offset: it may be a pipe
      const ssize_t moved = ::write(file.get(), waiting.data() + done, waiting.size() - done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) fail(TANDEM_ERROR_IO, "cannot write ", path, ": ", std::strerror(errno));
      done += static_cast<std::size_t>(moved);
    }
    waiting.clear();
  };
  waiting = R"({"traceEvents":[{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"tandem"}})";
  for (unsigned i = 0; i < rows.size(); ++i) put(kMostWaitingBytes, ",\n", metadata(i, rows[i].name));
  for (const TimelineSpan &span : spans) put(kMostWaitingBytes, ",\n", event(span, rows[span.row]));
  put(0, "],\n\"displayTimeUnit\":\"ms\",\"otherData\":", summary(rows, spans, makespan_seconds, efficiency), "}\n");
}

Timeline::Timeline(std::string file, const Log &log, std::size_t most_spans)
    : file_(std::move(file)), log_(log), most_spans_(most_spans) {}

void Timeline::check_file() const { make_new(file_); }

double Timeline::now() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

unsigned Timeline::find_or_add(std::string_view name, std::string_view kind) {
  if (const auto found = row_of_name_.find(name); found != row_of_name_.end()) return found->second;
  const auto row = static_cast<unsigned>(rows_.size());
  rows_.push_back({std::string(name), std::string(kind)});
  row_of_name_.emplace(name, row);
  return row;
}

unsigned Timeline::row(std::string_view name, std::string_view kind) noexcept {
  if (!is_of_this_process()) return kNoRow;
  try {
    const std::lock_guard lock(mutex_);
    return find_or_add(name, kind);
  } catch (const std::bad_alloc &) {
    return kNoRow;
  }
}

unsigned Timeline::row_of_this_thread(std::string_view kind, std::string_view role) noexcept {
  if (!is_of_this_process()) return kNoRow;
  try {
    const std::lock_guard lock(mutex_);
    std::string &name = name_of_thread_[std::this_thread::get_id()];
    if (name.empty()) name = base::text(role, " ", thread_count_[std::string(role)]++);
    return find_or_add(base::text(kind, ", ", name), kind);
  } catch (const std::bad_alloc &) {
    return kNoRow;
  }
}

void Timeline::add(const Span &span) noexcept {
  if (!is_of_this_process() || span.row == kNoRow) return;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (spans_.size() < most_spans_) {
        auto what = whats_.find(span.what);
        if (what == whats_.end()) what = whats_.emplace(span.what).first;
        spans_.push_back(span);
        spans_.back().what = *what;
        return;
      }
      if (std::exchange(is_full_, true)) return;
    }
    log_.say(TANDEM_LOG_WARNING,
             base::text("timeline ", file_, ": full at ", most_spans_, " spans; later ones are left out"));
  } catch (const std::exception &) {  // no memory: this span is left out
  }
}

void TimedStep::record() noexcept {
  const int of_the_step = errno;  // the caller has not looked at it yet
  span_.row = timeline_->row_of_this_thread("cpu");
  span_.end_seconds = Timeline::now();
  span_.committed = std::uncaught_exceptions() == exception_count_;
  timeline_->add(span_);
  errno = of_the_step;
}

void Timeline::write() noexcept {
  if (!is_of_this_process()) return;
  try {
    const std::lock_guard lock(mutex_);
    double first = spans_.empty() ? 0 : spans_.front().start_seconds, last = first;
    for (const Span &each : spans_) {
      first = std::min(first, each.start_seconds);
      last = std::max(last, each.end_seconds);
    }
    for (Span &each : spans_) {
      each.start_seconds -= first;
      each.end_seconds -= first;
    }
    write_timeline(file_, rows_, spans_, last - first, std::nullopt);
    // A later write() starts again.
    spans_.clear();
  } catch (const std::exception &error) {
    try {
      log_.say(TANDEM_LOG_WARNING, base::text("no timeline: ", error.what()));
    } catch (const std::exception &) {  // nothing more can be said
    }
  }
}

}  // namespace tandem::base
