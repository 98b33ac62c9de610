// What autotune has measured so far, one line each, appended as it happens: an interrupted run goes on from here, and
// bench/plot.py draws it (docs/TUNING.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuning/table.hpp"

namespace tandem::tuning {

enum class TuningFailure { refused, wrong };  // the device cannot run it; its bytes were not the expected ones

struct TuningMeasurement {
  std::vector<double> bytes_per_second;  // one a repeat
  std::optional<TuningFailure> failure;
};

class AutotuneJournal {
 public:
  static constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;

  AutotuneJournal() = default;  // keeps nothing beyond this object
  // Reads what is there and locks the file against other processes. `fresh`: a file that is no journal is replaced, and
  // the search forgets its own cases once it knows that it can begin. A file that is more than half full loses what
  // finished cases measured; one that is full gets no more. Throws Error: IO, UNAVAILABLE (another process holds it),
  // UNSUPPORTED (of a newer version), DAMAGED (no journal).
  AutotuneJournal(const std::string &path, bool fresh, std::size_t most_bytes = kMostFileBytes);
  ~AutotuneJournal();
  AutotuneJournal(const AutotuneJournal &) = delete;
  AutotuneJournal &operator=(const AutotuneJournal &) = delete;

  // `at` says of what: key, values and shard_bytes.
  TuningMeasurement measured(const TuningEntry &at) const;
  void add_sample(TuningEntry at, double bytes_per_second);
  void add_failure(TuningEntry at, TuningFailure failure);

  // A case whose search is over. `space` names what was searched.
  std::optional<TuningEntry> done(const TuningEntry &at, const std::string &space) const;
  void add_done(const TuningEntry &entry, const std::string &space);

  bool fresh() const noexcept { return fresh_; }
  void forget(const std::vector<TuningEntry> &cases);  // whatever the values

 private:
  using Keep = std::function<bool(const std::string &kind, const TuningEntry &entry)>;
  void rewrite(const std::string &text, const Keep &keep);
  void read(const std::string &text);
  void take(const std::string &kind, const TuningEntry &entry);
  void append(const std::string &kind, const TuningEntry &entry);
  void write(const std::string &line);

  std::string path_;
  int descriptor_ = -1;
  bool fresh_ = false;
  std::size_t most_bytes_ = kMostFileBytes, file_bytes_ = 0;
  std::map<std::string, TuningMeasurement> measured_;
  std::map<std::string, TuningEntry> done_;
};

std::string tuning_date_now();  // UTC, as TuningEntry::date

}  // namespace tandem::tuning
