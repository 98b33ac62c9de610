// SPDX-License-Identifier: Apache-2.0
#include "tuning/table.hpp"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/folder.hpp"
#include "base/io_error.hpp"
#include "base/pending_file.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "core/backend.hpp"
#include "core/codec.hpp"

namespace tandem::tuning {
namespace {

using base::cut;
using base::number_in;

// The first name tells the version. Rows of kind "speed", of earlier builds, are left out. Only they filled lanes and
// latency_seconds.
constexpr std::string_view kVersion = "tandem_tuning_2", kVersionStart = "tandem_tuning_";
constexpr std::string_view kHeader =
    "tandem_tuning_2\tbackend\tvendor\tdevice\tdriver\tkernel_hash\tmemory\toperation\tk\tm\tlanes\tvalues\t"
    "bytes_per_second\tdefault_bytes_per_second\tlatency_seconds\t"
    "shard_bytes\trepeats\tsearched\tdate";
constexpr std::size_t kColumnCount = 1 + std::ranges::count(kHeader, '\t');

// A column by its name in the header. The compiler finds it.
struct Column {
  consteval Column(const char *its_name) : name(its_name) {
    for (std::string_view rest = kHeader; rest.substr(0, rest.find('\t')) != name; ++index)
      rest = rest.substr(rest.find('\t') + 1);
  }
  std::string_view name;
  std::size_t index = 0;
};

constexpr Column kKind = "tandem_tuning_2", kBehindTheKey = "lanes";
constexpr std::string_view kTuned = "tuned", kLeftOut = "speed";

constexpr std::size_t kMostTextBytes = 256;  // of a name of a device and the like

// The text as a field may have it: short, and safe on a terminal.
std::string clean(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const base::Utf8Sequence next = base::first_utf8(text);
    if (kept.size() + next.length > kMostTextBytes) return kept;
    const auto first = static_cast<unsigned char>(text.front());
    kept += next.is_valid && first >= 0x20 && first != 0x7f ? text.substr(0, next.length) : "?";
    text.remove_prefix(next.length);
  }
  return kept;
}

bool valid_date(std::string_view date) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  if (date.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < date.size(); ++i) {
    const bool digit = date[i] >= '0' && date[i] <= '9';
    if (kForm[i] == 'd' ? !digit : date[i] != kForm[i]) return false;
  }
  return true;
}

using Fields = std::array<std::string_view, kColumnCount>;

// Splits at tabs. Throws Error (DAMAGED).
Fields fields_of(std::string_view line) {
  Fields fields;
  std::size_t count = 0;
  for (std::optional<std::string_view> rest = line; rest; ++count) {
    const std::string_view field = cut(rest, "\t");
    if (count < kColumnCount) fields[count] = field;
  }
  if (count != kColumnCount) base::fail(TANDEM_ERROR_DAMAGED, count, " fields, not ", kColumnCount);
  return fields;
}

// Takes the members of an entry from a row. Every function throws Error (DAMAGED) with the column.
class Reader {
 public:
  explicit Reader(const Fields &fields) : fields_(fields) {}

  void text(Column column, std::string &out) const {
    out = clean(fields_[column.index]);
    if (out != fields_[column.index])
      fail(column, "has more than ", kMostTextBytes, " bytes, or characters that cannot be shown");
  }
  template <class Number>
  void number(Column column, Number &out, std::uint64_t most) const {
    const std::optional<std::uint64_t> number = number_in<std::uint64_t>(fields_[column.index]);
    if (!number || *number == 0 || *number > most) fail(column, "is no number from 1 to ", most);
    out = static_cast<Number>(*number);
  }
  void rate(Column column, double &out) const {
    const std::optional<double> rate = number_in<double>(fields_[column.index]);
    if (!rate) fail(column, "is no number from 0 on");
    out = *rate;
  }
  void operation(Column column, core::TunedOperation &out) const {
    const std::optional<core::TunedOperation> known = core::tuned_operation_from_name(fields_[column.index]);
    if (!known) fail(column, "is none of encode, decode, verify, update");
    out = *known;
  }
  void memory(Column column, bool &on_device) const {
    on_device = fields_[column.index] == "device";
    if (!on_device && fields_[column.index] != "host") fail(column, "is neither host nor device");
  }
  void date(Column column, std::string &out) const {
    out = fields_[column.index];
    if (!valid_date(out)) fail(column, "is not such as 2025-11-21T16:55:20Z");
  }
  void values(Column column, core::TuningValues &out) const {
    for (std::optional<std::string_view> rest = fields_[column.index]; rest && !fields_[column.index].empty();) {
      std::optional<std::string_view> value = cut(rest, ", ");
      const std::string_view name = cut(value, "=");
      const std::optional<std::uint64_t> number = value ? number_in<std::uint64_t>(*value) : std::nullopt;
      if (!valid_name(name) || !number || *number > core::kMostTuningValue || out.size() == kMostValues ||
          !out.emplace(name, *number).second) {
        fail(column, "are not such as \"local_x=64, local_y=1\", at most ", kMostValues, " and up to ",
             core::kMostTuningValue);
      }
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] static void fail(Column column, const Parts &...why) {
    base::fail(TANDEM_ERROR_DAMAGED, column.name, " ", why...);
  }

  const Fields &fields_;
};

// Writes a row with the members of an entry.
class Writer {
 public:
  Writer() { fields_[kKind.index] = kTuned; }

  void text(Column column, const std::string &text) { fields_[column.index] = clean(text); }
  template <class Number>
  void number(Column column, Number number, std::uint64_t) {
    fields_[column.index] = base::text(number);
  }
  void rate(Column column, double rate) { fields_[column.index] = base::text(rate); }
  void operation(Column column, core::TunedOperation operation) {
    fields_[column.index] = core::tuned_operation_name(operation);
  }
  void memory(Column column, bool on_device) { fields_[column.index] = on_device ? "device" : "host"; }
  void date(Column column, const std::string &date) { fields_[column.index] = date; }
  void values(Column column, const core::TuningValues &values) {
    fields_[column.index] = core::tuning_values_text(values);
  }

  std::string line() const { return base::join(fields_, "\t") + "\n"; }
  std::string key() const { return base::join(std::span(fields_).first(kBehindTheKey.index), "\t"); }

 private:
  std::array<std::string, kColumnCount> fields_;
};

// The members of a row, for Reader and Writer.
template <class Either, class Access>
void each_member(Either &entry, Access &&access) {
  access.text("backend", entry.key.identity.backend);
  access.text("vendor", entry.key.identity.vendor);
  access.text("device", entry.key.identity.device);
  access.text("driver", entry.key.identity.driver);
  access.text("kernel_hash", entry.key.kernel_hash);
  access.memory("memory", entry.key.on_device);
  access.operation("operation", entry.key.operation);
  access.number("k", entry.key.k, core::kMaxShards);
  access.number("m", entry.key.m, core::kMaxShards);
  access.values("values", entry.values);
  access.rate("bytes_per_second", entry.bytes_per_second);
  access.rate("default_bytes_per_second", entry.default_bytes_per_second);
  access.number("shard_bytes", entry.shard_bytes, UINT64_MAX);
  access.number("repeats", entry.repeats, UINT32_MAX);
  access.text("searched", entry.searched);
  access.date("date", entry.date);
}

Writer row_of(const Entry &entry) {
  Writer row;
  each_member(entry, row);
  return row;
}

bool has_valid_rates(const Entry &entry) {
  const auto valid = [](double rate) { return std::isfinite(rate) && !std::signbit(rate); };
  return valid(entry.bytes_per_second) && valid(entry.default_bytes_per_second);
}

void check_header(std::string_view line) {
  const std::string_view version = line.substr(0, line.find('\t'));
  if (version != kVersion && version.starts_with(kVersionStart) &&
      number_in<std::uint64_t>(version.substr(kVersionStart.size())))
    base::fail(TANDEM_ERROR_UNSUPPORTED, "it is of another version than ", kVersion);
  if (line != kHeader) base::fail(TANDEM_ERROR_DAMAGED, "it is not the header of a tuning file");
}

// The distance of two codes: sizes count by their ratio. For an update, k does not count.
double distance(const Entry &entry, const core::TuningQuery &query) {
  const auto ratio = [](unsigned a, unsigned b) {
    return std::fabs(std::log2(std::max(a, 1u)) - std::log2(std::max(b, 1u)));
  };
  const double of_m = ratio(entry.key.m, query.rows);
  return query.mode == core::Mode::accumulate ? of_m : of_m + ratio(entry.key.k, query.columns);
}

void check_size(const std::string &path, const Table &table) {
  const std::size_t count = table.entries().size();
  if (count > Table::kMostEntries)
    base::fail(TANDEM_ERROR_TOO_LARGE, count, " entries do not fit ", path, ": at most ", Table::kMostEntries);
}

// Where a file is written and which folder is locked for it. A link stays, and its target is replaced.
struct Target {
  explicit Target(const std::string &path) {
    std::vector<std::string> made;
    base::make_folder(base::folder_of(path), made, 0700);  // as XDG says
    char real[PATH_MAX];
    const std::string target = realpath(path.c_str(), real) != nullptr ? real : path;
    folder = std::make_shared<base::Folder>(base::folder_of(target));
    name = base::name_of(target);
  }
  void write(const Table &table) const {
    const std::string text = table.to_text();
    base::PendingFile file(folder, base::text(name, ".", base::random_hexadecimal(8), ".tmp"), 0644);
    if (!base::write_at(file.descriptor(), reinterpret_cast<const std::byte *>(text.data()), text.size(), 0))
      base::fail_io("write", file.path(), errno);
    file.finish(false);
    file.rename(name, true, false);
  }

  std::shared_ptr<base::Folder> folder;
  std::string name;
};

}  // namespace

bool operator==(const EntryKey &a, const EntryKey &b) noexcept {
  const auto all = [](const EntryKey &key) {
    const core::TuningIdentity &identity = key.identity;
    return std::tie(identity.backend, identity.vendor, identity.device, identity.driver, key.kernel_hash, key.operation,
                    key.k, key.m, key.on_device);
  };
  return all(a) == all(b);
}

bool valid_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 64) return false;
  return std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

Table Table::parse(std::string_view text) {
  if (text.size() > kMostFileBytes) base::fail(TANDEM_ERROR_DAMAGED, text.size(), " bytes, more than ", kMostFileBytes);
  Table table;
  const auto add_row = [&](std::string_view line) {
    const Fields fields = fields_of(line);
    if (fields[kKind.index] == kTuned) {
      Entry entry;
      each_member(entry, Reader(fields));
      table.put(std::move(entry));
      if (table.entries_.size() > kMostEntries) base::fail(TANDEM_ERROR_DAMAGED, "more than ", kMostEntries, " rows");
    } else if (fields[kKind.index] != kLeftOut) {
      base::fail(TANDEM_ERROR_DAMAGED, "the first field is not tuned");
    }
  };
  std::size_t number = 0;
  try {
    for (std::optional<std::string_view> rest = text; number == 0 || (rest && !rest->empty());)
      ++number == 1 ? check_header(cut(rest, "\n")) : add_row(cut(rest, "\n"));
  } catch (const base::Error &error) {
    base::fail(error.status(), "line ", number, ": ", error.what());
  }
  return table;
}

// What would not be read back is left out: speeds of a clock that went wrong.
std::string Table::to_text() const {
  std::string text = base::text(kHeader, "\n");
  for (const Entry &entry : entries_)
    if (has_valid_rates(entry)) text += row_of(entry).line();
  return text;
}

void Table::put(Entry entry) { place(std::move(entry), false); }
void Table::replace(Entry entry) { place(std::move(entry), true); }

void Table::place(Entry entry, bool also_older) {
  const auto [place, is_new] = places_.emplace(row_of(entry).key(), entries_.size());
  if (is_new) {
    entries_.push_back(std::move(entry));
  } else if (Entry &same = entries_[place->second]; also_older || entry.date >= same.date) {
    same = std::move(entry);
  }
}

void Table::merge(const Table &other) {
  for (const Entry &entry : other.entries_) put(entry);
}

bool Table::knows(const core::TuningIdentity &identity) const noexcept {
  return std::ranges::any_of(entries_, [&](const Entry &entry) {
    return entry.key.identity.backend == identity.backend && entry.key.identity.vendor == identity.vendor;
  });
}

bool Table::has_backend(const std::string &name) const noexcept {
  return std::ranges::any_of(entries_, [&](const Entry &entry) { return entry.key.identity.backend == name; });
}

core::TuningChoice Table::find(const core::TuningQuery &query) const {
  // The lowest score wins: another device, another driver or kernel, the distance, and decode if encode is as near (a
  // matrix does not show which of the two it is for). Of equals the newest.
  using Rank = std::tuple<bool, unsigned, double, bool>;
  const Entry *best = nullptr;
  Rank best_rank;
  for (const Entry &entry : entries_) {
    const core::TuningIdentity &identity = entry.key.identity;
    if (identity.backend != query.identity.backend || identity.vendor != query.identity.vendor ||
        core::tuned_operation_mode(entry.key.operation) != query.mode || entry.key.on_device != query.on_device)
      continue;
    const Rank rank = {identity.device != query.identity.device,
                       (identity.driver != query.identity.driver) + (entry.key.kernel_hash != query.kernel_hash),
                       distance(entry, query), entry.key.operation == core::TunedOperation::decode};
    if (best == nullptr || rank < best_rank || (rank == best_rank && entry.date > best->date)) {
      best = &entry;
      best_rank = rank;
    }
  }
  if (best == nullptr) return {};
  const auto &[other_device, others, far, decode] = best_rank;
  const std::string what =
      query.mode == core::Mode::accumulate
          ? base::text("update of ", best->key.m, " parity shards")
          : base::text(core::tuned_operation_name(best->key.operation), " (", best->key.k, ", ", best->key.m, ")");
  const char *const exactness = far == 0 ? "" : ", the nearest that was tuned,";
  const std::string where =
      other_device ? base::text("another device of ", query.identity.vendor, ": ", best->key.identity.device)
      : others     ? std::string("this device with another driver or other kernels")
                   : std::string("this device");
  return {best->values,
          base::text("measured for ", what, exactness, " on ", query.on_device ? "the memory of " : "", where, ", ",
                     best->date),
          !other_device && best->key.identity.driver == query.identity.driver};
}

std::string date_now() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string file_path(const char *given, bool *named_out) {
  if (named_out != nullptr) *named_out = true;
  if (given != nullptr) return given;
  if (const char *variable = std::getenv("TANDEM_TUNING"); variable != nullptr) return variable;
  if (named_out != nullptr) *named_out = false;
  constexpr const char *kName = "/tandem/tuning.tsv";
  // The specification says to ignore relative folders.
  if (const char *data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/')
    return std::string(data) + kName;
  if (const char *home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.local/share" + kName;
  return {};
}

std::optional<std::string> read_regular_file(const std::string &path, std::size_t most_bytes) {
  const base::Descriptor file = base::open_to_read(path);
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    base::fail_io("open", path, errno);
  }
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) base::fail_io("read", path, errno);
  if (!S_ISREG(status.st_mode)) base::fail(TANDEM_ERROR_IO, path, " is no regular file");
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(status.st_size), most_bytes) + 1, '\0');
  const std::int64_t got = base::read_at(file.get(), reinterpret_cast<std::byte *>(text.data()), text.size(), 0);
  if (got < 0) base::fail_io("read", path, errno);
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > most_bytes) base::fail(TANDEM_ERROR_DAMAGED, path, " is larger than ", most_bytes, " bytes");
  return text;
}

Table read_file(const std::string &path) {
  const std::optional<std::string> text = read_regular_file(path, Table::kMostFileBytes);
  if (!text) return {};
  try {
    return Table::parse(*text);
  } catch (const base::Error &error) {
    base::fail(error.status(), "tuning file ", path, ": ", error.what());
  }
}

std::unique_ptr<const Table> load_file(const std::string &path, bool named, const base::Log &log) {
  if (path.empty()) return nullptr;
  try {
    if (named && access(path.c_str(), F_OK) != 0) {
      log.say(TANDEM_LOG_WARNING, "tuning file ", path, " does not exist: built-in values are used");
      return nullptr;
    }
    auto table = std::make_unique<Table>(read_file(path));
    if (table->empty()) return nullptr;
    return table;
  } catch (const base::Error &error) {
    log.say(TANDEM_LOG_WARNING, error.what(), ": ignored");
    return nullptr;
  }
}

Table update_file(const std::string &path, const std::function<void(Table &)> &change) {
  const Target target(path);
  std::optional<base::FoldersLock> lock;
  try {
    lock.emplace(base::Folders{target.folder}, base::LockWait{.seconds = 2});
  } catch (const base::FolderLocked &) {
    // Not a reason to lose a measurement.
  }
  Table table = read_file(path);
  change(table);
  check_size(path, table);
  target.write(table);
  return table;
}

}  // namespace tandem::tuning
