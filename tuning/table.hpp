// SPDX-License-Identifier: Apache-2.0
// Measurements of autotune, by device, in a file: a table with a header line (docs/tuning.md). The file is read as
// hostile input, and written whole or not at all. Backends look values up in it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "core/tuning.hpp"

namespace tandem::tuning {

// The key of a measurement. m of decode: how many shards are lost. k of update is 1, because one data shard changes in
// any code. on_device: of shards in device memory.
struct EntryKey {
  core::TuningIdentity identity;
  std::string kernel_hash;
  core::TunedOperation operation = core::TunedOperation::encode;
  unsigned k = 0, m = 0;
  bool on_device = false;
};
bool operator==(const EntryKey &a, const EntryKey &b) noexcept;

struct Entry {
  EntryKey key;
  core::TuningValues values;                                  // values that differ from the backend's own
  double bytes_per_second = 0, default_bytes_per_second = 0;  // of data; measured alternately in the same run
  std::uint64_t shard_bytes = 0;
  unsigned repeats = 0;
  std::string searched;  // a hash of what was searched; empty: the time was short
  std::string date;      // UTC, "2025-11-21T16:55:20Z": compared as text
};

// Immutable once a backend has it; then any number of threads may read it.
class Table final : public core::TuningSource {
 public:
  static constexpr std::size_t kMostFileBytes = std::size_t{8} << 20;
  static constexpr std::size_t kMostEntries = 10'000;

  // Throws Error with the line: DAMAGED (malformed), UNSUPPORTED (another version).
  static Table parse(std::string_view text);
  std::string to_text() const;

  // Of entries with the same key the newer one stays; of entries with the same date, the later one in the file.
  void put(Entry entry);
  // Replaces an older or newer entry: a clock may have been wrong.
  void replace(Entry entry);
  void merge(const Table &other);

  const std::vector<Entry> &entries() const noexcept { return entries_; }
  bool empty() const noexcept { return entries_.empty(); }

  // Exact -> nearest (k, m) on the device, first with its driver and kernels -> nearest of the same vendor -> nothing.
  core::TuningChoice find(const core::TuningQuery &query) const override;
  bool knows(const core::TuningIdentity &identity) const noexcept override;
  bool has_backend(const std::string &name) const noexcept;

 private:
  void place(Entry entry, bool also_older);

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> places_;  // by the key's part of a row
};

bool valid_name(std::string_view name) noexcept;  // of a value: [a-z0-9_]{1,64}
inline constexpr std::size_t kMostValues = 64;

std::string date_now();  // UTC, as Entry::date

// The path of the file: `given` if not null, else TANDEM_TUNING, else tandem/tuning.tsv in XDG_DATA_HOME or
// ~/.local/share. Empty: there is none. *named_out: an option or variable named it, so a missing file is worth a
// message.
std::string file_path(const char *given, bool *named_out = nullptr);

// Throws Error: IO (with errno's text), DAMAGED, UNSUPPORTED; the message has the path. No file: an empty table.
Table read_file(const std::string &path);
// The same for coding: an error becomes a warning, and null is returned, as for a table without entries.
std::unique_ptr<const Table> load_file(const std::string &path, bool named, const base::Log &log);
// Reads the file, changes the table, writes it back, and returns it: makes missing folders, writes a temporary beside
// the file and renames it. One at a time among threads and processes (flock of the folder). Waits two seconds at most,
// then continues without the lock: entries that are overwritten then are measured again. Throws Error as reading does,
// and the exceptions of `change`.
Table update_file(const std::string &path, const std::function<void(Table &)> &change);

// Reads at most `most_bytes` of a regular file; nothing if there is no such file. Throws Error (IO).
std::optional<std::string> read_regular_file(const std::string &path, std::size_t most_bytes);

}  // namespace tandem::tuning
