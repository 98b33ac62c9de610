// SPDX-License-Identifier: Apache-2.0
#include "tuning/journal.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"

namespace tandem::tuning {
namespace {

constexpr std::string_view kHeader = "{\"tandem_tuning_journal\":1}";
constexpr std::string_view kHeaderStart = "{\"tandem_tuning_journal\":";
// Each line is an entry of the tuning file with these fields in front.
constexpr std::string_view kKindStart = "{\"kind\":\"";
constexpr std::string_view kKindEnd = "\",";
constexpr std::string_view kSample = "sample", kRefused = "refused", kWrong = "wrong", kDone = "done ";

// A character that no text of an entry may contain.
constexpr char kBetween = '\x1f';

std::string place(const Entry &at) {
  const EntryKey &key = at.key;
  return base::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}{0}{6}{0}{7}{0}{8}{0}{9}{0}{10}", kBetween, key.identity.backend,
                      key.identity.vendor, key.identity.device, key.identity.driver, key.kernel_hash,
                      core::tuned_operation_name(key.operation), key.k, key.m, at.shard_bytes, key.on_device);
}

std::string place_with_values(const Entry &at) { return place(at) + kBetween + core::tuning_values_text(at.values); }

[[noreturn]] void fail_io(const char *what, const std::string &path) {
  base::fail(TANDEM_ERROR_IO, base::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string text_of(const std::string &path, bool fresh, std::size_t most_bytes) {
  try {
    return read_regular_file(path, most_bytes).value_or("");
  } catch (const base::Error &error) {
    if (error.status() != TANDEM_ERROR_DAMAGED) throw;
    if (fresh) return "too large";
    base::fail(TANDEM_ERROR_DAMAGED, base::format("{}; --fresh replaces it", error.what()));
  }
}

// Invalid lines are left out: a kill may have cut one.
template <class Body>  // line, kind, entry
void for_each_entry(std::string_view rest, const Body &body) {
  while (!rest.empty()) {
    const std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.starts_with(kKindStart)) continue;
    const std::size_t end = line.find(kKindEnd, kKindStart.size());
    if (end == std::string_view::npos) continue;
    const std::optional<Entry> entry = parse_entry(line);
    if (entry) body(line, std::string(line.substr(kKindStart.size(), end - kKindStart.size())), *entry);
  }
}

}  // namespace

std::string date_now() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Journal::Journal(const std::string &path, bool fresh, std::size_t most_bytes)
    : path_(path), fresh_(fresh), most_bytes_(most_bytes) {
  make_parent_folders(path);
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (descriptor_ < 0) fail_io("open", path);
  try {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_io("lock", path);
      base::fail(TANDEM_ERROR_UNAVAILABLE, base::format("another process is tuning: it holds {}", path));
    }
    std::string text = text_of(path, fresh, most_bytes);
    if (fresh && first_line(text) != kHeader) {
      if (ftruncate(descriptor_, 0) != 0) fail_io("empty", path);
      text.clear();
    }
    if (text.empty()) {
      write(std::string(kHeader) + "\n");
    } else {
      read(text);
      file_bytes_ = text.size();
      if (text.back() != '\n') write("\n");  // ends a line that a kill has cut
      if (text.size() > most_bytes / 2) {
        std::set<std::string> over;
        for (const auto &[name, entry] : done_) over.insert(place(entry));
        rewrite(text, [&](const std::string &kind, const Entry &entry) {
          return kind.starts_with(kDone) || !over.contains(place(entry));
        });
      }
    }
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

Journal::~Journal() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Journal::read(const std::string &text) {
  const std::string_view header = first_line(text);
  if (header != kHeader) {
    if (header.starts_with(kHeaderStart))
      base::fail(TANDEM_ERROR_UNSUPPORTED, base::format("{} is of another version; --fresh replaces it", path_));
    base::fail(TANDEM_ERROR_DAMAGED, base::format("{} is no journal of tandem autotune; --fresh replaces it", path_));
  }
  for_each_entry(text, [&](std::string_view, const std::string &kind, const Entry &entry) { take(kind, entry); });
}

// A kill in the middle loses measurements, but no results.
void Journal::rewrite(const std::string &text, const Keep &keep) {
  std::string kept = std::string(kHeader) + "\n";
  for_each_entry(text, [&](std::string_view line, const std::string &kind, const Entry &entry) {
    if (keep(kind, entry)) kept.append(line).push_back('\n');
  });
  if (ftruncate(descriptor_, 0) != 0) fail_io("empty", path_);
  file_bytes_ = 0;
  write(kept);
  measured_.clear();
  done_.clear();
  read(kept);
}

void Journal::forget(const std::vector<Entry> &cases) {
  if (descriptor_ < 0) return;
  std::set<std::string> places;
  for (const Entry &each : cases) places.insert(place(each));
  rewrite(read_regular_file(path_, most_bytes_).value_or(""),
          [&](const std::string &, const Entry &entry) { return !places.contains(place(entry)); });
}

void Journal::take(const std::string &kind, const Entry &entry) {
  if (kind == kSample && entry.bytes_per_second > 0) {
    measured_[place_with_values(entry)].bytes_per_second.push_back(entry.bytes_per_second);
  } else if (kind == kRefused) {
    measured_[place_with_values(entry)].failure = Failure::refused;
  } else if (kind == kWrong) {
    measured_[place_with_values(entry)].failure = Failure::wrong;
  } else if (kind.starts_with(kDone)) {
    done_[place(entry) + kBetween + kind.substr(kDone.size())] = entry;
  }
}

Measurement Journal::measured(const Entry &at) const {
  const auto found = measured_.find(place_with_values(at));
  return found != measured_.end() ? found->second : Measurement();
}

void Journal::add_sample(Entry at, double bytes_per_second) {
  at.bytes_per_second = bytes_per_second;
  append(std::string(kSample), at);
}

void Journal::add_failure(Entry at, Failure failure) {
  append(std::string(failure == Failure::refused ? kRefused : kWrong), at);
}

std::optional<Entry> Journal::done(const Entry &at, const std::string &space) const {
  const auto found = done_.find(place(at) + kBetween + space);
  return found != done_.end() ? std::optional(found->second) : std::nullopt;
}

void Journal::add_done(const Entry &entry, const std::string &space) { append(std::string(kDone) + space, entry); }

void Journal::append(const std::string &kind, const Entry &entry) {
  take(kind, entry);
  if (descriptor_ < 0) return;
  const std::string line = base::format("{}{}{}{}\n", kKindStart, kind, kKindEnd, entry_line(entry).substr(1));
  // a longer file could not be read again
  if (line.size() <= most_bytes_ - std::min(most_bytes_, file_bytes_)) write(line);
}

// In one piece, so that a kill leaves whole lines.
void Journal::write(const std::string &line) {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(descriptor_, line.data() + done, line.size() - done);
    if (wrote >= 0) {
      done += static_cast<std::size_t>(wrote);
      file_bytes_ += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR) {
      fail_io("write", path_);
    }
  }
}

}  // namespace tandem::tuning
