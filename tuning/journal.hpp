// SPDX-License-Identifier: Apache-2.0
// The measurements of autotune, one line each, appended as they happen. An interrupted run continues from here, and
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

enum class Failure { refused, wrong };  // the device cannot run it; its bytes were not the expected ones

struct Measurement {
  std::vector<double> bytes_per_second;  // one a repeat
  std::optional<Failure> failure;
};

class Journal {
 public:
  static constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;

  Journal() = default;  // keeps nothing beyond this object
  // Reads the file and locks it against other processes. `fresh`: a file that is no journal is replaced, and the search
  // forgets its own cases when it can begin. A file that is more than half full loses the measurements of finished
  // cases. A full file gets no more. Throws Error: IO, UNAVAILABLE (another process holds it), UNSUPPORTED (of a newer
  // version), DAMAGED (no journal).
  Journal(const std::string &path, bool fresh, std::size_t most_bytes = kMostFileBytes);
  ~Journal();
  Journal(const Journal &) = delete;
  Journal &operator=(const Journal &) = delete;

  // `at` identifies the measurement: key, values and shard_bytes.
  Measurement measured(const Entry &at) const;
  void add_sample(Entry at, double bytes_per_second);
  void add_failure(Entry at, Failure failure);

  // Marks a case as finished. `space` names what was searched.
  std::optional<Entry> done(const Entry &at, const std::string &space) const;
  void add_done(const Entry &entry, const std::string &space);

  bool fresh() const noexcept { return fresh_; }
  void forget(const std::vector<Entry> &cases);  // with any values

 private:
  using Keep = std::function<bool(const std::string &kind, const Entry &entry)>;
  void rewrite(const std::string &text, const Keep &keep);
  void read(const std::string &text);
  void take(const std::string &kind, const Entry &entry);
  void append(const std::string &kind, const Entry &entry);
  void write(const std::string &line);

  std::string path_;
  int descriptor_ = -1;
  bool fresh_ = false;
  std::size_t most_bytes_ = kMostFileBytes, file_bytes_ = 0;
  std::map<std::string, Measurement> measured_;
  std::map<std::string, Entry> done_;
};

std::string date_now();  // UTC, as Entry::date

}  // namespace tandem::tuning
