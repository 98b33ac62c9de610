// SPDX-License-Identifier: Apache-2.0
#include "tuning/table.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json.hpp"
#include "base/json_text.hpp"
#include "core/backend.hpp"
#include "core/codec.hpp"

namespace tandem::tuning {
namespace {

using base::Json;
using base::json_text;

constexpr unsigned kVersion = 1;
constexpr std::size_t kMostDepth = 8;
constexpr std::uint64_t kMostLanes = 65'536;
constexpr double kMostRate = 1e15, kMostLatencySeconds = 1e4;
constexpr std::size_t kMostTextBytes = 256;  // of a name of a device and the like

[[noreturn]] void fail_io(const char *what, const std::string &path, int error) {
  base::fail(TANDEM_ERROR_IO, base::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

bool read_text(const Json &object, const char *name, std::string *out) {
  const Json *value = object.member(name);
  const std::string *text = value != nullptr ? value->as<std::string>() : nullptr;
  if (text == nullptr || text->size() > kMostTextBytes) return false;
  for (const char c : *text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;  // it is printed on terminals
  *out = *text;
  return true;
}

bool read_number(const Json &object, const char *name, std::uint64_t least, std::uint64_t most, std::uint64_t *out) {
  const Json *value = object.member(name);
  const std::uint64_t *number = value != nullptr ? value->as<std::uint64_t>() : nullptr;
  if (number == nullptr) return false;
  *out = *number;
  return *out >= least && *out <= most;
}

bool read_rate(const Json &object, const char *name, double *out) {
  const Json *value = object.member(name);
  if (value == nullptr) return false;
  if (const std::uint64_t *whole = value->as<std::uint64_t>()) {
    *out = static_cast<double>(*whole);
  } else if (const double *number = value->as<double>()) {
    *out = *number;
  } else {
    return false;
  }
  return std::isfinite(*out) && *out >= 0;
}

bool valid_date(const std::string &date) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  if (date.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < date.size(); ++i) {
    const bool digit = date[i] >= '0' && date[i] <= '9';
    if (kForm[i] == 'd' ? !digit : date[i] != kForm[i]) return false;
  }
  return true;
}

bool read_values(const Json &object, core::TuningValues *out) {
  const Json *values = object.member("values");
  const Json::Object *members = values != nullptr ? values->as<Json::Object>() : nullptr;
  if (members == nullptr || members->list.size() > 2 * kMostValues) return false;
  for (std::size_t i = 0; i < members->list.size(); i += 2) {
    const std::string &name = std::get<std::string>(members->list[i].value);
    const std::uint64_t *number = members->list[i + 1].as<std::uint64_t>();
    if (!valid_name(name) || number == nullptr || *number > core::kMostTuningValue) return false;
    (*out)[name] = *number;
  }
  return true;
}

std::optional<Entry> entry_from(const Json &object) {
  Entry entry;
  EntryKey &key = entry.key;
  std::string operation;
  std::uint64_t k = 0, m = 0, repeats = 0;
  const bool whole =
      read_text(object, "backend", &key.identity.backend) && read_text(object, "vendor", &key.identity.vendor) &&
      read_text(object, "device", &key.identity.device) && read_text(object, "driver", &key.identity.driver) &&
      read_text(object, "kernel_hash", &key.kernel_hash) && read_text(object, "operation", &operation) &&
      read_number(object, "k", 1, core::kMaxShards, &k) && read_number(object, "m", 1, core::kMaxShards, &m) &&
      read_values(object, &entry.values) && read_rate(object, "bytes_per_second", &entry.bytes_per_second) &&
      read_rate(object, "default_bytes_per_second", &entry.default_bytes_per_second) &&
      read_number(object, "shard_bytes", 1, UINT64_MAX, &entry.shard_bytes) &&
      read_number(object, "repeats", 1, UINT32_MAX, &repeats) && read_text(object, "date", &entry.date);
  const std::optional<core::TunedOperation> known = core::tuned_operation_from_name(operation);
  if (!whole || !known || !valid_date(entry.date)) return std::nullopt;
  if (object.member("memory") != nullptr) {
    std::string memory;
    if (!read_text(object, "memory", &memory) || (memory != "host" && memory != "device")) return std::nullopt;
    key.on_device = memory == "device";
  }
  key.operation = *known;
  key.k = static_cast<unsigned>(k);
  key.m = static_cast<unsigned>(m);
  entry.repeats = static_cast<unsigned>(repeats);
  return entry;
}

bool valid_rate(double rate) { return rate == 0 || (rate >= 1 && rate <= kMostRate); }  // 0: not known

std::optional<core::SpeedEntry> speed_from(const Json &object) {
  core::SpeedEntry entry;
  std::string operation;
  std::uint64_t k = 0, m = 0, lanes = 0;
  const bool whole = read_text(object, "machine", &entry.machine) && read_text(object, "worker", &entry.worker) &&
                     read_text(object, "operation", &operation) && read_number(object, "k", 1, core::kMaxShards, &k) &&
                     read_number(object, "m", 1, core::kMaxShards, &m) &&
                     read_number(object, "lanes", 1, kMostLanes, &lanes) &&
                     read_rate(object, "bytes_per_second", &entry.bytes_per_second) &&
                     read_rate(object, "latency_seconds", &entry.latency_seconds) &&
                     read_rate(object, "alone_bytes_per_second", &entry.alone_bytes_per_second) &&
                     read_rate(object, "alone_latency_seconds", &entry.alone_latency_seconds) &&
                     read_text(object, "date", &entry.date);
  const std::optional<core::TunedOperation> known = core::tuned_operation_from_name(operation);
  if (!whole || !known || !valid_date(entry.date) || !valid_rate(entry.bytes_per_second) ||
      !valid_rate(entry.alone_bytes_per_second) ||
      std::max(entry.bytes_per_second, entry.alone_bytes_per_second) == 0 ||
      std::max(entry.latency_seconds, entry.alone_latency_seconds) > kMostLatencySeconds)
    return std::nullopt;
  entry.operation = *known;
  entry.k = static_cast<unsigned>(k);
  entry.m = static_cast<unsigned>(m);
  entry.lanes = static_cast<unsigned>(lanes);
  return entry;
}

std::string entry_line(const core::SpeedEntry &entry) {
  return base::format(
      R"({{"machine":{},"worker":{},"operation":{},"k":{},"m":{},"lanes":{},"bytes_per_second":{},)"
      R"("latency_seconds":{},"alone_bytes_per_second":{},"alone_latency_seconds":{},"date":{}}})",
      json_text(entry.machine), json_text(entry.worker), json_text(core::tuned_operation_name(entry.operation)),
      entry.k, entry.m, entry.lanes, json_text(entry.bytes_per_second), json_text(entry.latency_seconds),
      json_text(entry.alone_bytes_per_second), json_text(entry.alone_latency_seconds), json_text(entry.date));
}

// The distance of two codes: sizes count by their ratio. For an update, k does not count.
double distance(const Entry &entry, const core::TuningQuery &query) {
  const auto ratio = [](unsigned a, unsigned b) {
    return std::fabs(std::log2(std::max(a, 1u)) - std::log2(std::max(b, 1u)));
  };
  const double of_m = ratio(entry.key.m, query.rows);
  return query.mode == core::Mode::accumulate ? of_m : of_m + ratio(entry.key.k, query.columns);
}

// A character between the parts that no text of an entry may contain.
std::string key_text(const Entry &entry) {
  const EntryKey &key = entry.key;
  return base::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}{0}{6}{0}{7}{0}{8}{0}{9}", '\x1f', key.identity.backend,
                      key.identity.vendor, key.identity.device, key.identity.driver, key.kernel_hash,
                      static_cast<int>(key.operation), key.k, key.m, key.on_device);
}

std::string key_text(const core::SpeedEntry &entry) {
  return base::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}", '\x1f', entry.machine, entry.worker,
                      static_cast<int>(entry.operation), entry.k, entry.m);
}

// The entries of one list of the file. Of the same key the newest counts, and of the same date the last one.
template <class Any>
std::vector<Any> list_from(const Json &root, const char *name, std::optional<Any> (*read)(const Json &),
                           std::string (*key)(const Any &), std::size_t *refused) {
  std::vector<Any> list;
  std::map<std::string, std::size_t> places;
  const Json *objects = root.member(name);
  if (objects == nullptr) return list;
  const Json::List *items = objects->as<Json::List>();
  if (items == nullptr) base::fail(TANDEM_ERROR_DAMAGED, base::format("\"{}\" is no list", name));
  if (items->size() > Table::kMostEntries)
    base::fail(TANDEM_ERROR_DAMAGED, base::format("{} \"{}\", more than {}", items->size(), name, Table::kMostEntries));
  for (const Json &object : *items) {
    std::optional<Any> entry = read(object);
    if (!entry) {
      ++*refused;
      continue;
    }
    const auto [place, is_new] = places.emplace(key(*entry), list.size());
    if (is_new) {
      list.push_back(std::move(*entry));
    } else if (Any &same = list[place->second]; entry->date >= same.date) {
      same = std::move(*entry);
    }
  }
  return list;
}

// The target of a link. The link stays; the target is read, locked and replaced.
std::string real_path(const std::string &path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) != nullptr ? real : path;
}

// Holds the lock of a file's folder while the object lives.
class FolderLock {
 public:
  explicit FolderLock(const std::string &path) {
    constexpr int kMostNaps = 400;
    constexpr timespec kNap = {0, 5'000'000};
    const std::string target = real_path(path);
    const std::size_t slash = target.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
    folder_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; folder_ >= 0 && i < kMostNaps && flock(folder_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      nanosleep(&kNap, nullptr);
    }
  }
  ~FolderLock() {
    if (folder_ < 0) return;
    flock(folder_, LOCK_UN);  // a child that was forked meanwhile has the descriptor, too
    close(folder_);
  }
  FolderLock(const FolderLock &) = delete;
  FolderLock &operator=(const FolderLock &) = delete;

 private:
  int folder_;
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
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

std::string entry_line(const Entry &entry) {
  const EntryKey &key = entry.key;
  std::string values;
  for (const auto &[name, value] : entry.values)
    values += base::format("{}{}:{}", values.empty() ? "" : ",", json_text(name), value);
  return base::format(
      R"({{"backend":{},"vendor":{},"device":{},"driver":{},"kernel_hash":{},"operation":{},"k":{},)"
      R"("m":{},{}"values":{{{}}},"bytes_per_second":{},"default_bytes_per_second":{},"shard_bytes":{},)"
      R"("repeats":{},"date":{}}})",
      json_text(key.identity.backend), json_text(key.identity.vendor), json_text(key.identity.device),
      json_text(key.identity.driver), json_text(key.kernel_hash), json_text(core::tuned_operation_name(key.operation)),
      key.k, key.m, key.on_device ? R"("memory":"device",)" : "", values, json_text(entry.bytes_per_second),
      json_text(entry.default_bytes_per_second), entry.shard_bytes, entry.repeats, json_text(entry.date));
}

std::optional<Entry> parse_entry(std::string_view line) {
  const std::optional<Json> object = base::parse_json(line, kMostDepth);
  return object ? entry_from(*object) : std::nullopt;
}

Table Table::parse(std::string_view text, std::size_t *refused_count) {
  if (text.size() > kMostFileBytes)
    base::fail(TANDEM_ERROR_DAMAGED, base::format("{} bytes, more than {}", text.size(), kMostFileBytes));
  const std::optional<Json> parsed = base::parse_json(text, kMostDepth);
  if (!parsed) base::fail(TANDEM_ERROR_DAMAGED, "it is no whole JSON text");
  const Json &root = *parsed;
  std::uint64_t version = 0;
  if (!read_number(root, "tandem_tuning", 1, UINT64_MAX, &version))
    base::fail(TANDEM_ERROR_DAMAGED, "it has no version \"tandem_tuning\"");
  if (version > kVersion) {
    base::fail(TANDEM_ERROR_UNSUPPORTED,
               base::format("it is of version {}; this Tandem knows versions up to {}", version, kVersion));
  }
  if (root.member("entries") == nullptr) base::fail(TANDEM_ERROR_DAMAGED, "it has no list \"entries\"");
  Table table;
  std::size_t refused = 0;
  table.entries_ = list_from<Entry>(root, "entries", entry_from, key_text, &refused);
  table.speeds_ = list_from<core::SpeedEntry>(root, "speeds", speed_from, key_text, &refused);
  if (refused_count != nullptr) *refused_count = refused;
  return table;
}

std::string Table::to_json() const {
  std::string text = base::format("{{\n \"tandem_tuning\": {}", kVersion);
  const auto add = [&](const char *name, const auto &list) {
    text += base::format(",\n \"{}\": [", name);
    const char *between = "\n  ";
    for (const auto &entry : list) {
      text += between + entry_line(entry);
      between = ",\n  ";
    }
    text += "\n ]";
  };
  add("entries", entries_);
  if (!speeds_.empty()) add("speeds", speeds_);
  return text + "\n}\n";
}

Entry *Table::entry_of(const EntryKey &key) noexcept {
  const auto same =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry &known) { return known.key == key; });
  return same != entries_.end() ? &*same : nullptr;
}

void Table::put(Entry entry) {
  const Entry *same = entry_of(entry.key);
  if (same == nullptr || entry.date >= same->date) replace(std::move(entry));
}

void Table::replace(Entry entry) {
  if (Entry *same = entry_of(entry.key)) {
    *same = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

core::SpeedEntry *Table::entry_of(const core::SpeedEntry &like) noexcept {
  const auto same = std::find_if(speeds_.begin(), speeds_.end(),
                                 [&](const core::SpeedEntry &known) { return same_key(known, like); });
  return same != speeds_.end() ? &*same : nullptr;
}

void Table::put(core::SpeedEntry entry) {
  const core::SpeedEntry *same = entry_of(entry);
  if (same == nullptr || entry.date >= same->date) replace(std::move(entry));
}

void Table::replace(core::SpeedEntry entry) {
  if (core::SpeedEntry *same = entry_of(entry)) {
    *same = std::move(entry);
  } else {
    speeds_.push_back(std::move(entry));
  }
}

void Table::merge(const Table &other) {
  for (const Entry &entry : other.entries_) put(entry);
  for (const core::SpeedEntry &entry : other.speeds_) put(entry);
}

bool Table::knows(const core::TuningIdentity &identity) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry &entry) {
    return entry.key.identity.backend == identity.backend && entry.key.identity.vendor == identity.vendor;
  });
}

bool Table::has_backend(const std::string &name) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry &entry) { return entry.key.identity.backend == name; });
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
          ? base::format("update of {} parity shards", best->key.m)
          : base::format("{} ({}, {})", core::tuned_operation_name(best->key.operation), best->key.k, best->key.m);
  const char *const exactness = far == 0 ? "" : ", the nearest that was tuned,";
  const std::string where =
      other_device ? base::format("another device of {}: {}", query.identity.vendor, best->key.identity.device)
      : others     ? std::string("this device with another driver or other kernels")
                   : std::string("this device");
  return {best->values,
          base::format("measured for {}{} on {}{}, {}", what, exactness, query.on_device ? "the memory of " : "", where,
                       best->date),
          !other_device && best->key.identity.driver == query.identity.driver};
}

std::string file_path(const char *given, bool *named_out) {
  if (named_out != nullptr) *named_out = true;
  if (given != nullptr) return given;
  if (const char *variable = std::getenv("TANDEM_TUNING"); variable != nullptr) return variable;
  if (named_out != nullptr) *named_out = false;
  constexpr const char *kName = "/tandem/tuning.json";
  // The specification says to ignore relative folders.
  if (const char *data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/')
    return std::string(data) + kName;
  if (const char *home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.local/share" + kName;
  return {};
}

std::optional<std::string> read_regular_file(const std::string &path, std::size_t most_bytes) {
  const base::Descriptor file(
      open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // opening a pipe must not wait for its writer
  if (!file.is_open()) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail_io("open", path, errno);
  }
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  if (!S_ISREG(status.st_mode)) base::fail(TANDEM_ERROR_IO, base::format("{} is no regular file", path));
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      base::fail(TANDEM_ERROR_DAMAGED, base::format("{} is larger than {} bytes", path, most_bytes));
  }
}

Table read_file(const std::string &path, std::size_t *refused_count) {
  if (refused_count != nullptr) *refused_count = 0;
  const std::optional<std::string> text = read_regular_file(path, Table::kMostFileBytes);
  if (!text) return {};
  try {
    return Table::parse(*text, refused_count);
  } catch (const base::Error &error) {
    base::fail(error.status(), base::format("tuning file {}: {}", path, error.what()));
  }
}

std::unique_ptr<const Table> load_file(const std::string &path, bool named, const base::Log &log) {
  if (path.empty()) return nullptr;
  try {
    if (named && access(path.c_str(), F_OK) != 0) {
      log.say(TANDEM_LOG_WARNING, base::format("tuning file {} does not exist: built-in values are used", path));
      return nullptr;
    }
    std::size_t refused = 0;
    auto table = std::make_unique<Table>(read_file(path, &refused));
    if (refused != 0) {
      log.say(TANDEM_LOG_WARNING, base::format("tuning file {}: {} of {} entries make no sense and are ignored", path,
                                               refused, refused + table->entries().size() + table->speeds().size()));
    }
    if (table->empty()) return nullptr;
    return table;
  } catch (const base::Error &error) {
    log.say(TANDEM_LOG_WARNING, base::format("{}: ignored", error.what()));
    return nullptr;
  }
}

void make_parent_folders(const std::string &path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST && access(folder.c_str(), X_OK) != 0)  // 0700: as XDG says
      fail_io("make folder", folder, errno);
  }
}

void write_file(const std::string &path, const Table &table) {
  const std::size_t count = std::max(table.entries().size(), table.speeds().size());
  if (count > Table::kMostEntries) {
    base::fail(TANDEM_ERROR_TOO_LARGE,
               base::format("{} entries do not fit {}: at most {}", count, path, Table::kMostEntries));
  }
  make_parent_folders(path);
  const std::string target = real_path(path);
  const std::string text = table.to_json();
  std::string temporary = target + ".XXXXXX.tmp";  // a different one for each thread and container
  int error = 0;
  {
    const base::Descriptor file(mkostemps(temporary.data(), 4, O_CLOEXEC));
    if (!file.is_open()) fail_io("make", temporary, errno);
    if (fchmod(file.get(), 0644) != 0 || !file.write_all(text.data(), text.size()) || fsync(file.get()) != 0)
      error = errno;
  }
  if (error == 0 && rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return;
  unlink(temporary.c_str());
  fail_io("write", path, error);
}

Table update_file(const std::string &path, const std::function<void(Table &)> &change) {
  const FolderLock lock(path);
  Table table = read_file(path);
  change(table);
  write_file(path, table);
  return table;
}

}  // namespace tandem::tuning
