// SPDX-License-Identifier: Apache-2.0
#include "files/commit.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/io_error.hpp"
#include "base/text.hpp"

namespace tandem::files {
namespace {

// ---- names ----

constexpr std::string_view kPending = ".tandem-pending", kCommit = ".tandem-commit", kTemporary = ".tandem-tmp",
                           kShardFile = ".tandem";

std::string index_text(std::uint32_t index) { return base::digits(index, 10, 3); }

bool take(std::string_view &text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// ".013" or ".1013" at the end of `text`: three digits, or more and the first is not 0.
std::optional<std::uint32_t> take_index(std::string_view &text) {
  const std::size_t point = text.find_last_of('.');
  if (point == std::string_view::npos) return {};
  const std::string_view digits = text.substr(point + 1);
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || index >= kMaxShardCount || digits != index_text(index)) return {};
  text.remove_suffix(digits.size() + 1);
  return index;
}

std::optional<SetId> parse_set_id(std::string_view text) {
  SetId id;
  return base::parse_hexadecimal(text, id) ? std::optional(id) : std::nullopt;
}

// ---- offsets in a record; docs/format.md section 8 ----

constexpr unsigned char kMagic[8] = {0x89, 'T', 'N', 'D', 'C', '\r', '\n', 0x1a};
enum : std::size_t {
  kAtMagic = 0,
  kAtVersion = 8,
  kAtForce = 12,
  kAtSetId = 16,
  kAtShardCount = 32,
  kAtFolderCount = 36,
  kAtFolder = 40,
  kAtNameBytes = 44,
  kAtName = 48,
  kAtGivenUpCount = 624,
  kAtGivenUp = 632,
  kAtListsCheck = 896,
  kAtCheck = kCommitHeadBytes - 8,
  kAtFolderOf = kCommitHeadBytes,
  kAtStale = kAtFolderOf + 2 * kMaxShardCount,
  kAtDone = kAtStale + kMaxShardCount / 8
};
static_assert(kAtDone + kMaxShardCount / 8 == kCommitRecordBytes);

std::uint64_t check_of_lists(const std::byte *record) {
  return hash64(record + kCommitHeadBytes, kCommitRecordBytes - kCommitHeadBytes);
}

void store_bits(std::byte *at, const std::bitset<kMaxShardCount> &bits) {
  for (std::size_t i = 0; i < kMaxShardCount; ++i)
    if (bits[i]) at[i / 8] |= static_cast<std::byte>(1u << (i % 8));
}

std::bitset<kMaxShardCount> load_bits(const std::byte *at) {
  std::bitset<kMaxShardCount> bits;
  for (std::size_t i = 0; i < kMaxShardCount; ++i) bits[i] = (std::to_integer<unsigned>(at[i / 8]) >> (i % 8) & 1) != 0;
  return bits;
}

// Does not remove pending records. Without temporaries they do no harm. If their lead comes back, they show it that the
// folder is done. Throws if a live process may hold something. The new set's record then stays, and remembers the rest.
void remove_given_up(const Folder &folder, const CommitRecord &record) {
  if (record.given_up.empty()) return;
  std::vector<std::pair<OwnName, std::string>> found;
  for (const std::string &name : folder.names())
    if (const auto own = parse_own_name(name); own && own->kind != OwnKind::lone_temporary &&
                                               std::ranges::find(record.given_up, own->set_id) != record.given_up.end())
      found.emplace_back(*own, name);
  std::vector<Descriptor> locked;
  for (const auto &[own, name] : found) {
    if (own.kind == OwnKind::set_temporary) continue;
    Descriptor file = open_to_lock(folder, name);
    if (!file) fail_io("open", folder.path_of(name), errno);
    if (const Lock lock = lock_file(file); lock != Lock::ours)
      fail(TANDEM_ERROR_IO, folder.path_of(name), " is of a set that was given up, and ",
           lock == Lock::held_by_another ? "is being written" : "cannot be locked: " + error_text(errno));
    locked.push_back(std::move(file));
  }
  for (const OwnKind kind : {OwnKind::set_temporary, OwnKind::commit_record})
    for (const auto &[own, name] : found)
      if (own.kind == kind) folder.remove(name);
}

// Descriptors that this process may need for other things, while replaced files stay open for convenience.
constexpr rlim_t kLeftForOthersCount = 64;

// The lowest free descriptor is used first: the number of a new one tells how many there are.
bool leaves_enough(const Descriptor &newest) {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(newest.get()) + kLeftForOthersCount < limit.rlim_cur;
}

// Returns the shards that are missing.
std::vector<std::uint32_t> finish_folder(const FolderRecord &member, bool no_sync, std::vector<Descriptor> *replaced) {
  const CommitRecord &record = member.record;
  const Folder &folder = *member.folder;
  const std::vector<std::uint32_t> missing = missing_here(folder, record);
  for (std::uint32_t i = 0; i < record.shard_count; ++i) {
    if (!record.is_here(i)) continue;
    const std::string temporary = own_name({OwnKind::set_temporary, record.set_id, i});
    if (!folder.has(temporary)) continue;  // done before, or missing
    const std::string name = shard_file_name(record.name, i);
    if (is_shard_of(folder, name, record.set_id,
                    i)) {  // a run died after it gave the file its second name, or repair made one
      folder.remove(temporary);
      continue;
    }
    // An intact file of the old set is replaced only by the file that was committed.
    if (!is_shard_of(folder, temporary, record.set_id, i))
      fail(TANDEM_ERROR_DAMAGED, folder.path_of(temporary), " is damaged at both ends");
    if (Descriptor old = record.force ? folder.open_file(name, O_RDONLY) : Descriptor(); old && leaves_enough(old))
      replaced->push_back(std::move(old));
    folder.rename(temporary, name, record.force);
  }
  for (std::uint32_t i = 0; missing.empty() && i < kMaxShardCount; ++i) {
    if (!record.stale[i] || record.is_here(i)) continue;
    const std::string name = shard_file_name(record.name, i);
    if (is_shard_file(folder, name) && !is_shard_of(folder, name, record.set_id, i)) folder.remove(name);
  }
  remove_given_up(folder, record);
  if (!no_sync) folder.sync();
  return missing;
}

// A finished file of record.folder = `number` lies in one of these folders. Then that folder knows that the set counts,
// because no file gets its name before the record beside it says so.
bool knows_by_itself(const CommitRecord &record, std::uint32_t number, const Folders &folders) {
  return std::ranges::any_of(folders, [&](const auto &folder) {
    for (std::uint32_t i = 0; i < record.shard_count; ++i)
      if (record.folder_of[i] == number && is_shard_of(*folder, shard_file_name(record.name, i), record.set_id, i))
        return true;
    return false;
  });
}

// record.folder = `number` was done, and a newer set was written there since. This is known if all folders are named,
// one has no record, and another set's shard has a name that belongs to this set.
bool was_written_over(const CommitRecord &record, std::uint32_t number, const Folders &named,
                      const std::vector<FolderRecord> &members) {
  if (named.size() < record.folder_count) return false;
  return std::ranges::any_of(named, [&](const auto &folder) {
    if (std::ranges::any_of(members, [&](const FolderRecord &member) { return member.folder == folder; })) return false;
    for (std::uint32_t i = 0; i < record.shard_count; ++i)
      if (record.folder_of[i] == number && is_shard_file(*folder, shard_file_name(record.name, i))) return true;
    return false;
  });
}

bool has(const std::vector<FolderRecord> &members, std::uint32_t folder) {
  return std::ranges::any_of(members, [&](const FolderRecord &m) { return m.record.folder == folder; });
}

// Another folder may need the lead's record to know that the set counts.
bool lead_stays(const std::vector<FolderRecord> &members, const Folders &named) {
  const CommitRecord &record = members.front().record;
  for (std::uint32_t folder = 1; folder < record.folder_count; ++folder)
    if (!has(members, folder) && !knows_by_itself(record, folder, named) &&
        !was_written_over(record, folder, named, members))
      return true;
  return false;
}

// The others' records first: while one of them exists, on the disk too, the lead's must exist. `stays`: by folder
// number.
void remove_records(const std::vector<FolderRecord> &members, const std::bitset<kMaxShardCount> &stays, bool no_sync) {
  for (const bool lead : {false, true}) {
    for (const FolderRecord &member : members) {
      if ((member.record.folder == 0) != lead || stays[member.record.folder]) continue;
      for (const OwnKind kind : {OwnKind::pending_record, OwnKind::commit_record})
        member.folder->remove(own_name({kind, member.record.set_id}));
      if (!lead && !no_sync) member.folder->sync();
    }
  }
}

// Throws if that cannot be known: an unreadable file may be a shard file.
std::optional<Record> record_of(const Folder &folder, const std::string &name,
                                std::uint64_t *file_bytes_out = nullptr) {
  const Descriptor file = folder.open_file(name, O_RDONLY);
  // Nothing for a link, for anything that is not a regular file, and for a missing name.
  if (!file && (errno == ENOENT || errno == ELOOP || errno == EINVAL || errno == ENAMETOOLONG)) return {};
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0) fail_io("open", folder.path_of(name), errno);
  if (file_bytes_out != nullptr) *file_bytes_out = static_cast<std::uint64_t>(status.st_size);
  std::array<std::byte, kRecordBytes> bytes;
  int error = 0;
  for (const RecordEnd end : {RecordEnd::start, RecordEnd::end}) {
    const off_t at = end == RecordEnd::start ? 0 : status.st_size - static_cast<off_t>(kRecordBytes);
    if (at < 0) continue;
    const std::int64_t got = read_at(file.get(), bytes.data(), bytes.size(), static_cast<std::uint64_t>(at));
    if (got < 0) error = errno;
    Record record;
    if (got == static_cast<std::int64_t>(bytes.size()) && parse_record(bytes, &record) == ParseResult::record &&
        record.end == end)
      return record;
  }
  if (error != 0) fail_io("read", folder.path_of(name), error);
  return {};
}

}  // namespace

std::optional<OwnName> parse_own_name(std::string_view name) {
  if (!name.starts_with('.')) return {};
  name.remove_prefix(1);
  OwnName own{};
  if (take(name, kPending)) {
    own.kind = OwnKind::pending_record;
  } else if (take(name, kCommit)) {
    own.kind = OwnKind::commit_record;
  } else if (!take(name, kTemporary)) {
    return {};
  } else if (const auto index = take_index(name)) {
    own.kind = OwnKind::set_temporary;
    own.index = *index;
  } else {
    own.kind = OwnKind::lone_temporary;
  }
  const auto id = parse_set_id(name);
  if (!id) return {};
  own.set_id = *id;
  return own;
}

std::string own_name(const OwnName &name) {
  const std::string id = hexadecimal(name.set_id);
  switch (name.kind) {
    case OwnKind::pending_record:
      return base::text(".", id, kPending);
    case OwnKind::commit_record:
      return base::text(".", id, kCommit);
    case OwnKind::set_temporary:
      return base::text(".", id, ".", index_text(name.index), kTemporary);
    default:
      return base::text(".", id, kTemporary);
  }
}

std::string shard_file_name(std::string_view set_name, std::uint32_t index) {
  return base::text(set_name, ".", index_text(index), kShardFile);
}

std::optional<std::pair<std::string, std::uint32_t>> parse_shard_file_name(const std::string &name) {
  std::string_view left = name;
  if (!take(left, kShardFile)) return {};
  const auto index = take_index(left);
  if (!index || left.empty()) return {};
  return std::pair(std::string(left), *index);
}

std::size_t max_set_name_bytes(std::uint32_t shard_count) { return 255 - shard_file_name("", shard_count - 1).size(); }

bool is_set_name(std::string_view name, std::uint32_t shard_count) {
  return !name.empty() && name.size() <= max_set_name_bytes(shard_count) && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::vector<std::byte> commit_record_bytes(const CommitRecord &record) {
  std::vector<std::byte> bytes(kCommitRecordBytes);
  std::byte *at = bytes.data();
  std::memcpy(at + kAtMagic, kMagic, sizeof kMagic);
  store(at + kAtVersion, kCommitRecordVersion);
  store(at + kAtForce, std::uint32_t{record.force});
  std::memcpy(at + kAtSetId, record.set_id.data(), record.set_id.size());
  store(at + kAtShardCount, record.shard_count);
  store(at + kAtFolderCount, record.folder_count);
  store(at + kAtFolder, record.folder);
  store(at + kAtNameBytes, static_cast<std::uint32_t>(record.name.size()));
  std::memcpy(at + kAtName, record.name.data(), record.name.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(record.folder_of.size(), kMaxShardCount); ++i)
    store(at + kAtFolderOf + 2 * i, record.folder_of[i]);
  store_bits(at + kAtStale, record.stale);
  store_bits(at + kAtDone, record.done);
  store(at + kAtGivenUpCount, static_cast<std::uint32_t>(record.given_up.size()));
  for (std::size_t i = 0; i < record.given_up.size(); ++i)
    std::memcpy(at + kAtGivenUp + i * sizeof(SetId), record.given_up[i].data(), sizeof(SetId));
  store(at + kAtListsCheck, check_of_lists(at));
  store(at + kAtCheck, hash64(at, kAtCheck));
  return bytes;
}

std::optional<std::uint32_t> commit_record_version(std::span<const std::byte> bytes) {
  const std::byte *at = bytes.data();
  if (bytes.size() < kCommitHeadBytes || std::memcmp(at + kAtMagic, kMagic, sizeof kMagic) != 0) return {};
  if (load<std::uint64_t>(at + kAtCheck) != hash64(at, kAtCheck)) return {};
  return load<std::uint32_t>(at + kAtVersion);
}

bool parse_commit_record(std::span<const std::byte> bytes, CommitRecord *record_out) {
  const std::byte *at = bytes.data();
  if (commit_record_version(bytes) != kCommitRecordVersion || bytes.size() < kCommitRecordBytes ||
      load<std::uint64_t>(at + kAtListsCheck) != check_of_lists(at))
    return false;
  CommitRecord record;
  const auto force = load<std::uint32_t>(at + kAtForce), name_bytes = load<std::uint32_t>(at + kAtNameBytes);
  std::memcpy(record.set_id.data(), at + kAtSetId, record.set_id.size());
  record.shard_count = load<std::uint32_t>(at + kAtShardCount);
  record.folder_count = load<std::uint32_t>(at + kAtFolderCount);
  record.folder = load<std::uint32_t>(at + kAtFolder);
  if (force > 1 || record.shard_count == 0 || record.shard_count > kMaxShardCount || record.folder_count == 0 ||
      record.folder_count > record.shard_count || record.folder >= record.folder_count ||
      name_bytes > max_set_name_bytes(record.shard_count))
    return false;
  record.force = force == 1;
  record.name.assign(reinterpret_cast<const char *>(at + kAtName), name_bytes);
  if (!is_set_name(record.name, record.shard_count)) return false;
  for (std::uint32_t i = 0; i < record.shard_count; ++i) {
    record.folder_of.push_back(load<std::uint16_t>(at + kAtFolderOf + 2 * i));
    if (record.folder_of[i] >= record.folder_count) return false;
  }
  record.stale = load_bits(at + kAtStale);
  record.done = load_bits(at + kAtDone);
  const auto given_up_count = load<std::uint32_t>(at + kAtGivenUpCount);
  if (given_up_count > kMaxGivenUpCount) return false;
  record.given_up.resize(given_up_count);
  for (std::size_t i = 0; i < given_up_count; ++i)
    std::memcpy(record.given_up[i].data(), at + kAtGivenUp + i * sizeof(SetId), sizeof(SetId));
  *record_out = std::move(record);
  return true;
}

std::vector<std::byte> read_commit_record(const Descriptor &file) {
  std::vector<std::byte> bytes(kCommitRecordBytes);
  bytes.resize(static_cast<std::size_t>(
      std::max<std::int64_t>(file ? read_at(file.get(), bytes.data(), bytes.size(), 0) : 0, 0)));
  return bytes;
}

bool is_shard_file(const Folder &folder, const std::string &name) { return record_of(folder, name).has_value(); }

bool is_shard_of(const Folder &folder, const std::string &name, const SetId &set_id, std::uint32_t index) {
  const std::optional<Record> record = record_of(folder, name);
  return record && record->set.set_id == set_id && record->shard_index == index;
}

std::optional<SetHeader> whole_shard_of(const Folder &folder, const std::string &name, const SetId &set_id,
                                        std::uint32_t index) {
  std::uint64_t file_bytes = 0;
  const std::optional<Record> record = record_of(folder, name, &file_bytes);
  if (!record || record->set.set_id != set_id || record->shard_index != index ||
      record->set.shard_file_bytes() != file_bytes)
    return {};
  return record->set;
}

std::vector<std::uint32_t> missing_here(const Folder &folder, const CommitRecord &record) {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < record.shard_count; ++i)
    if (record.is_here(i) && !folder.has(own_name({OwnKind::set_temporary, record.set_id, i})) &&
        !is_shard_of(folder, shard_file_name(record.name, i), record.set_id, i))
      missing.push_back(i);
  return missing;
}

void rewrite_record(FolderRecord &member, bool no_sync) {
  const std::vector<std::byte> bytes = commit_record_bytes(member.record);
  const std::string name = own_name({OwnKind::pending_record, member.record.set_id});
  OwnName temporary{OwnKind::lone_temporary};
  random_bytes(temporary.set_id);
  PendingFile file(member.folder, own_name(temporary), kModeUnknown);
  if (!write_at(file.descriptor(), bytes.data(), bytes.size(), 0)) fail_io("write", file.path(), errno);
  file.finish(no_sync);
  file.rename(name, true, no_sync);
  member.file = std::move(file).take();
}

void make_committed(FolderRecord &member) {
  if (member.committed) return;
  member.folder->rename(own_name({OwnKind::pending_record, member.record.set_id}),
                        own_name({OwnKind::commit_record, member.record.set_id}), true);
  member.committed = true;
}

Finished roll_forward(std::vector<FolderRecord> &members, const Folders &named, bool no_sync) {
  // First every folder learns that the set counts, the lead before the others. Then each can be finished without the
  // lead. An existing name may come from a run that died before its sync.
  for (const bool lead : {true, false}) {
    for (FolderRecord &member : members) {
      if ((member.record.folder == 0) != lead) continue;
      make_committed(member);
      if (!no_sync) member.folder->sync();
    }
  }
  Finished finished;
  std::bitset<kMaxShardCount> stays;
  for (const FolderRecord &member : members) {
    const std::vector<std::uint32_t> missing = finish_folder(member, no_sync, &finished.replaced);
    for (const std::uint32_t i : missing)
      finished.missing.push_back(member.folder->path_of(shard_file_name(member.record.name, i)));
    // The lead has no other way to learn that this folder is done.
    if (!missing.empty() && !has(members, 0)) stays.set(member.record.folder);
  }
  stays[0] = lead_stays(members, named);
  remove_records(members, stays, no_sync);
  finished.record_left =
      std::ranges::any_of(members, [&](const FolderRecord &member) { return stays[member.record.folder]; });
  return finished;
}

bool leaves_record(const std::vector<FolderRecord> &members, const Folders &named) {
  if (has(members, 0)) return lead_stays(members, named);
  return std::ranges::any_of(
      members, [](const FolderRecord &member) { return !missing_here(*member.folder, member.record).empty(); });
}

bool roll_back(std::vector<FolderRecord> &members, bool no_sync) {
  // If a sync failed, the disk may not know yet that the set does not count.
  for (const FolderRecord &member : members)
    if (member.record.folder == 0 && !no_sync) member.folder->sync();
  for (const FolderRecord &member : members)
    for (std::uint32_t i = 0; i < member.record.shard_count; ++i)
      if (member.record.is_here(i)) member.folder->remove(own_name({OwnKind::set_temporary, member.record.set_id, i}));
  const auto lead = std::ranges::find_if(
      members, [](const FolderRecord &m) { return m.record.folder == 0 && m.record.folder_count != 0; });
  std::bitset<kMaxShardCount> stays;
  if (lead != members.end()) {
    std::bitset<kMaxShardCount> done = lead->record.done;
    std::size_t unreadable_count = 0;  // damaged records, each of a folder that would otherwise be missed
    for (const FolderRecord &member : members) {
      if (member.record.folder_count == 0) ++unreadable_count;
      if (member.record.folder != 0) done.set(member.record.folder);
      if (!no_sync) member.folder->sync();
    }
    stays[0] = 1 + done.count() + unreadable_count < lead->record.folder_count;
    if (stays[0]) {
      // The records of the other folders show that they are done. The lead records this before they are removed.
      if (done != lead->record.done) {
        lead->record.done = done;
        rewrite_record(*lead, no_sync);
      }
    } else {
      // Without temporaries the others' records are removed without the lead's, which would otherwise wait for ever.
      lead->folder->remove(own_name({OwnKind::pending_record, lead->record.set_id}));
      if (!no_sync) lead->folder->sync();
    }
  }
  remove_records(members, stays, no_sync);
  return !stays[0];
}

}  // namespace tandem::files
