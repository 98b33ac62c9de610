// SPDX-License-Identifier: Apache-2.0
#include "files/search.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/handles.hpp"
#include "files/recoverable.hpp"
#include "files/unfinished.hpp"
#include "tandem/files.h"

namespace tandem::files {
namespace {

class Searcher {
 public:
  explicit Searcher(const std::vector<std::string> &paths) {
    std::vector<std::pair<std::string, std::size_t>> files;  // path, place of its folder
    std::vector<std::size_t> whole_folders;
    for (const std::string &path : paths) {
      struct stat status;
      if (stat(path.c_str(), &status) != 0) fail_io("find", path, errno);
      if (S_ISDIR(status.st_mode)) {
        try {
          whole_folders.push_back(folders_.add(path, FolderUse::list));
        } catch (const base::Error &error) {  // shards may lie there
          found_.unread.emplace_back(error.what());
        }
      } else {
        files.emplace_back(path, folders_.add(folder_of(path), FolderUse::enter));
      }
    }
    const Folders &folders = folders_.list();
    names_ = names_in(folders);
    for (const std::size_t folder : whole_folders)
      for (const std::string &name : names_[folder]) look_at(folders[folder]->path_of(name), folder);
    for (const auto &[path, folder] : files) look_at(path, folder);
  }

  // No file got another name while they were read: what was found is the state of one moment.
  bool is_undisturbed() const { return names_in(folders_.list()) == names_; }

  Search finish(const std::vector<std::string> &paths) {
    unite();
    for (Headless &file : headless_) adopt(file);
    for (const auto &folder : folders_.list()) found_.folders.push_back(folder->path());
    for (FoundSet &set : found_.sets) {
      std::ranges::stable_sort(set.files, [](const ShardFile &a, const ShardFile &b) { return a.index < b.index; });
      set.name = name_of_files(set);
      if (set.name == hexadecimal(set.header.set_id) && !set.header.name.empty()) set.name = set.header.name;
      for (std::size_t i = 0; i < set.files.size(); ++i)
        if (i == 0 || set.files[i].index != set.files[i - 1].index) ++set.shard_count;
    }
    set_aside();
    std::ranges::stable_sort(found_.sets,
                             [](const FoundSet &a, const FoundSet &b) { return a.shard_count > b.shard_count; });
    found_.paths = paths;
    return std::move(found_);
  }

 private:
  struct Headless {
    ShardFile file;
    std::string why;
    ParseResult result;  // of its records: the result that `why` describes
  };

  static std::vector<std::vector<std::string>> names_in(const Folders &folders) {
    std::vector<std::vector<std::string>> names;
    for (const auto &folder : folders)
      names.push_back(folder->can_be_listed() ? folder->names() : std::vector<std::string>());
    return names;
  }

  void look_at(const std::string &path, std::size_t folder) {
    const auto own = parse_own_name(name_of(path));
    if (own && own->kind != OwnKind::set_temporary) return;
    const Descriptor file = open_to_read(path);
    struct stat status;
    if (!file) return leave_unopened(path, errno);
    if (fstat(file.get(), &status) != 0) return leave_unread("stat", path, errno);
    if (!S_ISREG(status.st_mode)) return ignore(path, "no regular file");
    if (!seen_.emplace(status.st_dev, status.st_ino).second) return;  // named twice

    const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
    if (file_bytes < kRecordBytes) return own ? void() : ignore(path, "no shard file");
    ShardFile shard;
    shard.path = path;
    shard.identity = {status.st_dev, status.st_ino};
    shard.folder = folder;
    shard.file_bytes = file_bytes;
    Record start, end;
    std::string start_why, end_why;
    bool is_written = false;
    const auto parse_at = [&](std::uint64_t offset, Record *record_out, std::string *why_out) {
      std::array<std::byte, kRecordBytes> bytes = {};
      const std::int64_t got = read_at(file.get(), bytes.data(), bytes.size(), offset);
      if (got < 0) shard.unread = cannot("read", path, errno);
      is_written = is_written || !is_unwritten(bytes);
      return got == static_cast<std::int64_t>(bytes.size()) ? parse_record(bytes, record_out, why_out)
                                                            : ParseResult::not_a_record;
    };
    const ParseResult start_result = parse_at(0, &start, &start_why);
    if (own && !is_written && shard.unread.empty()) return;
    const ParseResult end_result = parse_at(file_bytes - kRecordBytes, &end, &end_why);
    const bool start_good = start_result == ParseResult::record && start.end == RecordEnd::start;
    bool end_good = end_result == ParseResult::record && end.end == RecordEnd::end;
    if (!start_good && !end_good) {
      const ParseResult result = std::max(start_result, end_result);
      std::string why = start_result >= end_result ? start_why : end_why;
      if (why.empty()) why = why_ignored(result);
      headless_.push_back({std::move(shard), std::move(why), result});
      return;
    }
    // The end belongs to another set or shard; for instance, a longer file was overwritten. The blocks' checksums show
    // what is left.
    if (start_good && end_good && !(start.set == end.set && start.shard_index == end.shard_index)) end_good = false;

    const Record &record = start_good ? start : end;
    shard.index = record.shard_index;
    const std::uint64_t intact_bytes = record.set.shard_file_bytes();
    if (!start_good) shard.condition |= TANDEM_FILES_START_DAMAGED;
    if (!end_good) shard.condition |= TANDEM_FILES_END_DAMAGED;
    if (file_bytes != intact_bytes) shard.condition |= TANDEM_FILES_WRONG_LENGTH;
    if (start_good) shard.bases[shard.base_count++] = 0;
    if (end_good && (!start_good || file_bytes != intact_bytes))
      shard.bases[shard.base_count++] = static_cast<std::int64_t>(file_bytes) - static_cast<std::int64_t>(intact_bytes);

    shard.header = record.set;
    const auto [first, last] = places_.equal_range(record.set.set_id);
    const auto same =
        std::find_if(first, last, [&](const auto &p) { return found_.sets[p.second].header == record.set; });
    if (same != last) {
      found_.sets[same->second].files.push_back(std::move(shard));
    } else {
      places_.emplace(record.set.set_id, found_.sets.size());
      found_.sets.push_back({record.set, {std::move(shard)}, "", 0});
    }
  }

  // Unites files of one set that have different m in their records: a resize is not finished. The larger m is that of
  // the set only if a file with it is a shard that the smaller m lacks: a single file cannot claim more shards, unless
  // it is one of them.
  void unite() {
    const auto is_same_id = [](const auto &one, const auto &other) { return one.first == other.first; };
    if (std::ranges::adjacent_find(places_, is_same_id) == places_.end()) return;
    std::vector<FoundSet> parts = std::exchange(found_.sets, {});
    std::ranges::stable_sort(parts, [](const FoundSet &a, const FoundSet &b) {
      return a.header.m != b.header.m ? a.header.m < b.header.m : a.files.size() > b.files.size();
    });
    for (FoundSet &part : parts) {
      const auto set = std::ranges::find_if(
          found_.sets, [&](const FoundSet &each) { return describe_one_set(each.header, part.header); });
      if (set == found_.sets.end() || !has_code(part.header, true)) {
        found_.sets.push_back(std::move(part));
        continue;
      }
      if (!has_code(set->header, true) || std::ranges::any_of(part.files, [&](const ShardFile &file) {
            return file.index >= set->header.shard_count();
          }))
        set->header = part.header;
      std::move(part.files.begin(), part.files.end(), std::back_inserter(set->files));
    }
    for (FoundSet &set : found_.sets)
      for (ShardFile &file : set.files)
        if (file.header != set.header) file.condition |= TANDEM_FILES_OTHER_M;
  }

  // Tells which sets were replaced, and takes those away of which no shard has a name yet.
  void set_aside() {
    std::map<std::pair<SetId, std::string>, SetId> successors;  // of a set of that name
    for (const FoundSet &set : found_.sets) {
      if (!has_name(set)) continue;
      sync_names(set);
      if (set.header.replaced.empty() || !has_enough_shards(set)) continue;
      for (const SetId &id : set.header.replaced)
        if (id != set.header.set_id) successors[{id, set.header.name}] = set.header.set_id;
    }
    std::erase_if(found_.sets, [&](const FoundSet &set) {
      if (has_name(set)) return false;
      for (const ShardFile &file : set.files)
        ignore(file.path, base::text("of set ", hexadecimal(set.header.set_id), ", which is not finished"));
      return true;
    });
    for (FoundSet &set : found_.sets)
      if (const auto successor = successors.find({set.header.set_id, set.header.name});
          successor != successors.end() && !set.header.lists(successor->second))
        set.replaced_by = successor->second;
  }

  static bool is_temporary(const ShardFile &file) { return parse_own_name(name_of(file.path)).has_value(); }
  static bool has_name(const FoundSet &set) { return !std::ranges::all_of(set.files, is_temporary); }

  // A set that gets its names now must not be gone again after a loss of power, once it was read.
  void sync_names(const FoundSet &set) {
    const std::string by_set = hexadecimal(set.header.set_id) + ".";
    if (std::ranges::none_of(set.files, [&](const ShardFile &file) {
          return is_temporary(file) || name_of(file.path).starts_with(by_set);
        }))
      return;
    std::set<std::size_t> folders;
    for (const ShardFile &file : set.files) folders.insert(file.folder);
    for (const std::size_t folder : folders) {
      const Descriptor held(open(found_.folders[folder].c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (held && fsync(held.get()) != 0 && errno == EIO) leave_unread("sync", found_.folders[folder], errno);
    }
  }

  // Whether it is a shard file is not known, unless it is a link to a missing file or no regular file.
  void leave_unopened(const std::string &path, int error) {
    struct stat status;
    const bool is_there = stat(path.c_str(), &status) == 0;
    const bool leads_nowhere = error == ENOENT && lstat(path.c_str(), &status) == 0;
    if (is_there ? !S_ISREG(status.st_mode) : leads_nowhere)
      return ignore(path, std::generic_category().message(error));
    if (error != ENOENT) return leave_unread("open", path, error);
    if (found_.vanished.empty()) found_.vanished = cannot("open", path, error);
  }

  void leave_unread(std::string_view what, const std::string &path, int error) {
    found_.unread.push_back(cannot(what, path, error));
  }

  static std::string cannot(std::string_view what, const std::string &path, int error) {
    return base::text("cannot ", what, " ", path, ": ", error_text(error));
  }

  static std::string why_ignored(ParseResult result) {
    if (result == ParseResult::damaged) return "a shard file, but its header is damaged at both ends";
    if (result == ParseResult::record) return "half a shard file: its record is at the wrong end";
    return "no shard file";
  }

  // A file without a record may still have blocks, and each block's checksum tells its place. The file counts as the
  // shard that most of them belong to. The order in which sets were found must not matter.
  void adopt(Headless &headless) {
    ShardFile &shard = headless.file;
    FoundSet *best_set = nullptr;
    std::uint32_t best_index = 0, most_votes = 0;
    for (FoundSet &set : found_.sets) {
      const auto [index, votes] = vote(shard, set.header);
      if (votes == 0 || votes < most_votes) continue;
      if (votes == most_votes && best_set->header.set_id <= set.header.set_id) continue;
      best_set = &set;
      best_index = index;
      most_votes = votes;
    }
    if (best_set == nullptr) {
      if (!shard.unread.empty()) return found_.unread.push_back(std::move(shard.unread));
      ignore(shard.path, headless.why);
      std::string *const first =
          headless.result == ParseResult::unknown_version ? &found_.other_version
          : headless.result == ParseResult::out_of_limits || headless.result == ParseResult::damaged ? &found_.unusable
                                                                                                     : nullptr;
      if (first != nullptr && first->empty()) *first = found_.ignored.back();
      return;
    }
    shard.header = best_set->header;
    shard.index = best_index;
    shard.condition = TANDEM_FILES_START_DAMAGED | TANDEM_FILES_END_DAMAGED;
    shard.base_count = 1;
    best_set->files.push_back(std::move(shard));
  }

  // The shard of a set that most of three blocks belong to (the lowest of several), and how many do.
  static std::pair<std::uint32_t, std::uint32_t> vote(ShardFile &shard, const SetHeader &header) {
    const std::uint64_t stripe_count = header.stripe_count();
    std::pair<std::uint32_t, std::uint32_t> best{0, 0};
    if (stripe_count == 0 || shard.file_bytes != header.shard_file_bytes()) return best;
    const Descriptor file = open_to_read(shard.path);
    if (!file) {
      shard.unread = cannot("open", shard.path, errno);
      return best;
    }
    std::vector<std::byte> block(header.block_bytes);
    std::vector<std::uint32_t> votes(header.shard_count(), 0);
    for (const std::uint64_t stripe : std::set{std::uint64_t{0}, stripe_count / 2, stripe_count - 1}) {
      const std::uint64_t payload_bytes = header.payload_bytes_of(stripe), bytes = payload_bytes + kCheckBytes;
      const std::int64_t got = read_at(file.get(), block.data(), bytes, header.block_offset(stripe));
      if (got < 0) shard.unread = cannot("read", shard.path, errno);
      if (got != static_cast<std::int64_t>(bytes)) continue;
      const Hash128 check = read_check(block.data() + payload_bytes);
      const Hash128 payload = hash128(block.data(), payload_bytes);
      for (std::uint32_t index = 0; index < header.shard_count(); ++index)
        if (block_check(header.set_id, index, stripe, payload, payload_bytes) == check) ++votes[index];
    }
    const auto most = std::ranges::max_element(votes);
    return {static_cast<std::uint32_t>(most - votes.begin()), *most};
  }

  void ignore(const std::string &path, std::string_view why) { found_.ignored.push_back(base::text(path, ": ", why)); }

  ManyFolders folders_;
  std::vector<std::vector<std::string>> names_;  // by folder, when the search began
  Search found_;
  std::multimap<SetId, std::size_t> places_;  // in Search::sets; records of one id may differ
  std::vector<Headless> headless_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

std::string list(const std::vector<const FoundSet *> &sets) {
  constexpr std::size_t kMostListed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(sets.size(), kMostListed); ++i) {
    const std::string &name = sets[i]->name;
    text += base::text(i == 0 ? "" : ", ", hexadecimal(sets[i]->header.set_id), " (", name, name.empty() ? "" : ", ",
                       sets[i]->shard_count, " of ", sets[i]->header.shard_count(), " shards)");
  }
  return sets.size() > kMostListed ? text + ", ..." : text;
}

}  // namespace

std::size_t Search::choose(const std::string &set_id_prefix, const std::string &name) const {
  if (sets.empty()) {
    if (const std::string why = not_read(); !why.empty()) fail(TANDEM_ERROR_IO, why);
    if (!other_version.empty()) fail(TANDEM_ERROR_UNSUPPORTED, other_version);
    fail(unusable.empty() ? TANDEM_ERROR_IO : TANDEM_ERROR_NOT_RECOVERABLE, "no shard file found (", ignored.size(),
         " other file", ignored.size() == 1 ? "" : "s", ")", unusable.empty() ? "" : "; ", unusable);
  }
  std::string wanted = set_id_prefix;
  for (char &c : wanted) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::vector<const FoundSet *> all, matches, enough, replaced;
  for (const FoundSet &set : sets) {
    all.push_back(&set);
    if (!hexadecimal(set.header.set_id).starts_with(wanted) || (!name.empty() && set.name != name)) continue;
    const bool counts = !wanted.empty() || set.replaced_by == SetId();
    (counts ? matches : replaced).push_back(&set);
    if (counts && known_shard_count(set) >= set.header.k) enough.push_back(&set);
  }
  if (matches.empty() && !replaced.empty())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "set ", hexadecimal(replaced[0]->header.set_id), " was replaced by set ",
         hexadecimal(replaced[0]->replaced_by), "; choose one with --set ID");
  if (matches.empty())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, wanted.empty() ? "no set is called " : "no set has an id that starts with ",
         wanted.empty() ? name : wanted, "; there are: ", list(all));
  if (matches.size() > 1 && enough.size() != 1)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, matches.size(), name.empty() ? " sets found" : " sets are called ", name,
         ", choose one with --set ID", name.empty() ? " or --name NAME" : "",
         " (in a program: set_id_prefix): ", list(matches));
  const FoundSet *const chosen = matches.size() == 1 ? matches[0] : enough[0];  // the others are left-overs
  if (wanted.empty())
    for (const FoundSet &set : sets)
      if (&set != chosen && set.header.lists(chosen->header.set_id) && set.header.name == chosen->header.name)
        fail(TANDEM_ERROR_NOT_RECOVERABLE, "set ", hexadecimal(set.header.set_id), " replaced set ",
             hexadecimal(chosen->header.set_id), ", but only ", set.shard_count, " of the ", set.header.k,
             " shards that it needs are found; the older content is read with --set ",
             hexadecimal(chosen->header.set_id), " (in a program: set_id_prefix)");
  return static_cast<std::size_t>(chosen - sets.data());
}

std::string name_of_files(const FoundSet &set) {
  std::map<std::string, std::size_t> votes;
  for (const ShardFile &file : set.files)
    if (const auto parts = parse_shard_file_name(name_of(file.path)); parts && parts->second == file.index)
      ++votes[parts->first];
  const auto most = std::ranges::max_element(votes, [](const auto &a, const auto &b) { return a.second < b.second; });
  return most != votes.end() ? most->first : "";
}

void check_current(const Search &search) {
  check_current(search, FoundSet());
  for (const FoundSet &set : search.sets) check_current(search, set);
}

void check_current(const Search &search, const FoundSet &set) {
  if (!search.vanished.empty()) fail(TANDEM_ERROR_IO, search.vanished, ": it existed a moment ago");
  for (const ShardFile &file : set.files) {
    struct stat status;
    if (stat(file.path.c_str(), &status) != 0) fail_io("find", file.path, errno);
    if (std::pair(status.st_dev, status.st_ino) != file.identity)
      fail(TANDEM_ERROR_IO, file.path, " was replaced since it was found");
  }
}

void check_all_read(const Search &search, const FoundSet &set, bool recoverable) {
  const std::string why = search.not_read();
  if (!why.empty() && !(recoverable && set.shard_count == set.header.shard_count()))
    fail(TANDEM_ERROR_IO, why, "; set ", hexadecimal(set.header.set_id), " may have more shards there");
}

std::size_t Search::choose_to_code(const std::string &set_id_prefix) const {
  const std::size_t chosen = choose(set_id_prefix, "");
  try {
    make_codec_to_read(sets[chosen].header);
  } catch (const Error &error) {
    if (error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
    fail(TANDEM_ERROR_DAMAGED, sets[chosen].files[0].path,
         ": its header asks for a code that this Tandem does not have: ", error.what());
  }
  return chosen;
}

Search search(const std::vector<std::string> &paths) {
  constexpr int kMostTries = 20;
  for (int tries = 1;; ++tries) {
    Searcher searcher(paths);
    if (tries == kMostTries || searcher.is_undisturbed()) return searcher.finish(paths);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::uint32_t least_m(const FoundSet &set) {
  std::uint32_t least = set.header.m;
  for (const ShardFile &file : set.files) least = std::min(least, file.header.m);
  return least;
}

std::vector<std::uint32_t> missing_shards(const FoundSet &set) {
  std::vector<bool> found(set.header.shard_count(), false);
  for (const ShardFile &file : set.files) found[file.index] = true;
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < found.size(); ++i)
    if (!found[i]) missing.push_back(i);
  return missing;
}

bool has_enough_shards(const FoundSet &set) {
  std::vector<std::uint8_t> present(set.header.shard_count(), 0);
  for (const ShardFile &file : set.files) present[file.index] = 1;
  return shards_suffice(set.header, present);
}

std::uint32_t known_shard_count(const FoundSet &set) {
  return set.shard_count + static_cast<std::uint32_t>(std::ranges::count_if(
                               missing_shards(set), [&](std::uint32_t shard) { return set.header.is_padding(shard); }));
}

}  // namespace tandem::files
