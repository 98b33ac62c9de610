#include "files/search.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "files/error.hpp"
#include "files/io.hpp"
#include "tandem/files.h"

namespace tandem::files {
namespace {

class Searcher {
 public:
  void look_at(const std::string &path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) fail_io("find", path, errno);
    if (S_ISDIR(status.st_mode)) {
      look_into(path);
    } else {
      look_at_file(path);
    }
  }

  Search finish() {
    for (ShardSet &set : found_.sets) {
      std::stable_sort(set.files.begin(), set.files.end(),
                       [](const ShardFile &a, const ShardFile &b) { return a.index < b.index; });
      for (std::size_t i = 0; i < set.files.size(); ++i)
        if (i == 0 || set.files[i].index != set.files[i - 1].index) ++set.shard_count;
    }
    std::stable_sort(found_.sets.begin(), found_.sets.end(),
                     [](const ShardSet &a, const ShardSet &b) { return a.shard_count > b.shard_count; });
    return std::move(found_);
  }

 private:
  void look_into(const std::string &folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (!entry->is_directory(ignored)) names.push_back(entry->path().string());
    }
    if (error) fail_io("list", folder, error.value());
    std::sort(names.begin(), names.end());
    for (const std::string &name : names) look_at_file(name);
  }

  void look_at_file(const std::string &path) {
    const Descriptor file = open_to_read(path);
    if (!file) return ignore(path, std::generic_category().message(errno));
    struct stat status;
    if (fstat(file.get(), &status) != 0) return ignore(path, std::generic_category().message(errno));
    if (!S_ISREG(status.st_mode)) return ignore(path, "no regular file");
    if (!seen_.emplace(status.st_dev, status.st_ino).second) return;  // named twice

    const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
    if (file_bytes < kRecordBytes) return ignore(path, "no shard file");
    Record start, end;
    const ParseResult start_result = parse_at(file.get(), 0, &start);
    const ParseResult end_result = parse_at(file.get(), file_bytes - kRecordBytes, &end);
    const bool start_good = start_result == ParseResult::record && start.end == RecordEnd::start;
    bool end_good = end_result == ParseResult::record && end.end == RecordEnd::end;
    if (!start_good && !end_good) return ignore(path, why_ignored(start_result, end_result));
    // The end belongs to another set or shard: overwritten by a longer file, say. The blocks' checksums tell what is
    // left.
    if (start_good && end_good && !(start.set == end.set && start.shard_index == end.shard_index)) end_good = false;

    const Record &record = start_good ? start : end;
    ShardFile shard;
    shard.path = path;
    shard.index = record.shard_index;
    shard.file_bytes = file_bytes;
    const std::uint64_t intact_bytes = record.set.shard_file_bytes();
    if (!start_good) shard.condition |= TANDEM_FILES_START_DAMAGED;
    if (!end_good) shard.condition |= TANDEM_FILES_END_DAMAGED;
    if (file_bytes != intact_bytes) shard.condition |= TANDEM_FILES_WRONG_LENGTH;
    if (start_good) shard.bases[shard.base_count++] = 0;
    if (end_good && (!start_good || file_bytes != intact_bytes))
      shard.bases[shard.base_count++] = static_cast<std::int64_t>(file_bytes) - static_cast<std::int64_t>(intact_bytes);

    const auto same = std::find_if(found_.sets.begin(), found_.sets.end(),
                                   [&](const ShardSet &set) { return set.header == record.set; });
    if (same != found_.sets.end()) {
      same->files.push_back(std::move(shard));
    } else {
      found_.sets.push_back({record.set, {std::move(shard)}, 0});
    }
  }

  static ParseResult parse_at(int file, std::uint64_t offset, Record *record_out) {
    std::array<std::byte, kRecordBytes> bytes;
    if (read_at(file, bytes.data(), bytes.size(), offset) != static_cast<std::int64_t>(bytes.size()))
      return ParseResult::not_a_record;
    return parse_record(bytes, record_out);
  }

  static std::string why_ignored(ParseResult start, ParseResult end) {
    const auto either = [&](ParseResult result) { return start == result || end == result; };
    if (either(ParseResult::unknown_version)) return "a shard file of a version that this program does not know";
    if (either(ParseResult::out_of_limits)) return "its header is out of the format's limits";
    if (either(ParseResult::damaged)) return "a shard file whose header is damaged at both ends";
    if (either(ParseResult::record)) return "half a shard file: its record is at the wrong end";
    return "no shard file";
  }

  void ignore(const std::string &path, std::string_view why) {
    found_.ignored.push_back(fmt::format("{}: {}", path, why));
  }

  Search found_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

std::size_t Search::choose(const std::string &set_id_prefix) const {
  if (sets.empty()) {
    fail(TANDEM_ERROR_NOT_RECOVERABLE,
         fmt::format("no shard file found ({} other file{})", ignored.size(), ignored.size() == 1 ? "" : "s"));
  }
  std::string wanted = set_id_prefix;
  for (char &c : wanted) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::optional<std::size_t> chosen;
  std::size_t match_count = 0;
  std::string list;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::string id = hexadecimal(sets[i].header.set_id);
    if (i < 8)
      list += fmt::format("{}{} ({} of {} shards)", i == 0 ? "" : ", ", id, sets[i].shard_count,
                          sets[i].header.shard_count());
    if (i == 8) list += ", ...";
    if (!id.starts_with(wanted)) continue;
    ++match_count;
    if (!chosen) chosen = i;
  }
  if (match_count == 1) return *chosen;
  if (match_count == 0)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format("no set has an id that starts with {}; there are: {}", wanted, list));
  fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} sets found, choose one by its id: {}", match_count, list));
}

Search search(const std::vector<std::string> &paths) {
  Searcher searcher;
  for (const std::string &path : paths) searcher.look_at(path);
  return searcher.finish();
}

}  // namespace tandem::files
