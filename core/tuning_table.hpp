// What was measured on which device, by autotune and by hybrids at work, as a file (docs/TUNING.md): read as hostile,
// written whole or not at all, and asked by the backends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.hpp"
#include "core/tuning.hpp"

namespace tandem::core {

// The values are those of enum tandem_operation_value.
enum class TunedOperation { encode = 0, decode = 1, verify = 2, update = 3 };

const char *tuned_operation_name(TunedOperation operation) noexcept;
std::optional<TunedOperation> tuned_operation_from_name(std::string_view name) noexcept;
Mode tuned_operation_mode(TunedOperation operation) noexcept;

// What a measurement is of. m of decode: how many shards are lost. k of update is 1: one data shard changes, whatever
// the code.
struct TuningKey {
  TuningIdentity identity;
  std::string kernel_hash;
  TunedOperation operation = TunedOperation::encode;
  unsigned k = 0, m = 0;
};
bool operator==(const TuningKey &a, const TuningKey &b) noexcept;

struct TuningEntry {
  TuningKey key;
  TuningValues values;                                        // those that are not the backend's own
  double bytes_per_second = 0, default_bytes_per_second = 0;  // of data; measured alternately in the same run
  std::uint64_t shard_bytes = 0;
  unsigned repeats = 0;
  std::string date;  // UTC, "2025-11-21T16:55:20Z": compared as text
};

// How fast a worker of a hybrid was.
struct SpeedEntry {
  std::string machine;                                // the model of its CPU
  std::string worker;                                 // "cpu", "cpu:1" (a NUMA node), "opencl:0:0"
  TunedOperation operation = TunedOperation::encode;  // encode: also decode and repair
  unsigned k = 0, m = 0;                              // shards that are read, and that are written or compared
  unsigned lanes = 1;                                 // each is a thread of the CPU, or a queue of a device
  double bytes_per_second = 0;                        // of data, of one lane, with the other workers at work
  double alone_bytes_per_second = 0;                  // of the CPU: with no device at work; 0: not known
  double start_up_seconds = 0;                        // of a device: how much longer its first task took
  std::string date;                                   // as above
};
// Machine, worker, operation, k and m.
bool same_key(const SpeedEntry &a, const SpeedEntry &b) noexcept;

// Immutable once it is given to a backend; then any number of threads may ask it.
class TuningTable final : public TuningSource {
 public:
  static constexpr std::size_t kMostFileBytes = std::size_t{8} << 20;
  static constexpr std::size_t kMostEntries = 10'000;  // of each kind

  // Throws Error: DAMAGED (no JSON, or not of this form), UNSUPPORTED (a newer version). An entry that makes no sense
  // is left out, and counted in *refused_count if that is given.
  static TuningTable parse(std::string_view text, std::size_t *refused_count = nullptr);
  std::string to_json() const;

  // Of the same key the newer one stays; of the same date the one that came last.
  void put(TuningEntry entry);
  void put(SpeedEntry entry);
  // Whatever the date of the one that was there: a clock may have been wrong.
  void replace(TuningEntry entry);
  void replace(SpeedEntry entry);
  void merge(const TuningTable &other);

  const std::vector<TuningEntry> &entries() const noexcept { return entries_; }
  const std::vector<SpeedEntry> &speeds() const noexcept { return speeds_; }
  bool empty() const noexcept { return entries_.empty() && speeds_.empty(); }

  // Exact -> nearest (k, m) on the device, first with its driver and kernels -> nearest of the same vendor -> nothing.
  TuningChoice find(const TuningQuery &query) const override;
  bool knows(const TuningIdentity &identity) const noexcept override;
  bool has_backend(const std::string &name) const noexcept;

 private:
  TuningEntry *entry_of(const TuningKey &key) noexcept;
  SpeedEntry *entry_of(const SpeedEntry &like) noexcept;

  std::vector<TuningEntry> entries_;
  std::vector<SpeedEntry> speeds_;
};

// "local_x=64, local_y=1"
std::string tuning_values_text(const TuningValues &values);
// As 16 hexadecimal digits; no defence against anybody.
std::string tuning_hash(std::string_view text);
bool valid_tuning_name(std::string_view name) noexcept;  // of a value: [a-z0-9_]{1,64}
inline constexpr std::uint64_t kMostTuningValue = std::uint64_t{1} << 40;
inline constexpr std::size_t kMostTuningValues = 64;

// The parts of the file's text that the journal of autotune shares; `line` is one JSON object without line breaks.
std::string tuning_entry_line(const TuningEntry &entry);
std::optional<TuningEntry> parse_tuning_entry(std::string_view line);

// Where the file is: `given` if not null, else TANDEM_TUNING, else tandem/tuning.json in XDG_DATA_HOME or
// ~/.local/share. Empty: there is none. *named_out: somebody named it, so that its absence is worth a word.
std::string tuning_file_path(const char *given, bool *named_out = nullptr);

// Throws Error: IO (with errno's text), DAMAGED, UNSUPPORTED; the message has the path. No file: an empty table.
TuningTable read_tuning_file(const std::string &path, std::size_t *refused_count = nullptr);
// The same for coding: whatever is wrong is a warning, and null is returned, as for a table without entries.
std::unique_ptr<const TuningTable> load_tuning_file(const std::string &path, bool named, const Log &log);
// Makes missing folders; writes beside it and renames. Throws Error (IO).
void write_tuning_file(const std::string &path, const TuningTable &table);

// From reading a tuning file to having written it back, one at a time among threads and processes (flock of its
// folder). Waits two seconds at most, and goes without where there is no lock to be had: what is overwritten then is
// measured again.
class TuningFileTurn {
 public:
  explicit TuningFileTurn(const std::string &path);
  ~TuningFileTurn();
  TuningFileTurn(const TuningFileTurn &) = delete;
  TuningFileTurn &operator=(const TuningFileTurn &) = delete;

 private:
  int folder_;
};

// At most `most_bytes` of a regular file; nothing if there is no such file. Throws Error (IO).
std::optional<std::string> read_regular_file(const std::string &path, std::size_t most_bytes);
void make_parent_folders(const std::string &path);  // throws Error (IO)

}  // namespace tandem::core
