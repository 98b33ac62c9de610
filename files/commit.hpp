// SPDX-License-Identifier: Apache-2.0
// Makes all files of a set valid at once, in one folder or several (docs/format.md, section 8). Each folder holds
// temporaries and a record. The record's name tells whether the set counts. Renaming the first folder's record is the
// commit. Here are the names, the record, and the steps after the commit or instead of it. recovery.hpp decides which
// of these a dead run needs; new_set.hpp writes a set.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pending_file.hpp"
#include "files/format.hpp"

namespace tandem::files {

// ---- names of files besides shard files ----

enum class OwnKind { pending_record, commit_record, set_temporary, lone_temporary };

struct OwnName {
  OwnKind kind;
  SetId set_id{};           // lone_temporary: a random number
  std::uint32_t index = 0;  // set_temporary: the shard's
};

std::optional<OwnName> parse_own_name(std::string_view name);
std::string own_name(const OwnName &name);
std::string shard_file_name(std::string_view set_name, std::uint32_t index);
// "video.mp4.003.tandem" -> {"video.mp4", 3}.
std::optional<std::pair<std::string, std::uint32_t>> parse_shard_file_name(const std::string &name);

// ---- the record ----

constexpr std::size_t kCommitHeadBytes = 1024;  // has a checksum of its own: every Tandem can tell the version
constexpr std::size_t kCommitRecordBytes = 10 << 10;
constexpr std::uint32_t kCommitRecordVersion = 3;
constexpr std::size_t kMaxGivenUpCount = 16;

struct CommitRecord {
  SetId set_id{};
  std::uint32_t shard_count = 0;
  std::uint32_t folder_count = 0, folder = 0;  // folder 0 leads: its record decides
  bool force = false;
  std::string name;                      // of the set: a plain part of a file name
  std::vector<std::uint16_t> folder_of;  // by shard: shard_count of them
  std::bitset<kMaxShardCount> stale;     // files of this name in this folder that the set replaces
  std::bitset<kMaxShardCount> done;  // in the lead's record, for a set that does not count: folders without any file of
                                     // it
  std::vector<SetId> given_up;       // unfinished sets in this folder that are removed when this set counts
  bool operator==(const CommitRecord &) const = default;

  bool is_here(std::uint32_t shard) const { return shard < shard_count && folder_of[shard] == folder; }
};

// A file's name has at most 255 bytes.
std::size_t max_set_name_bytes(std::uint32_t shard_count);
bool is_set_name(std::string_view name, std::uint32_t shard_count);
// kCommitRecordBytes.
std::vector<std::byte> commit_record_bytes(const CommitRecord &record);
// For bytes that begin like an intact record, also of a version that this code does not know.
std::optional<std::uint32_t> commit_record_version(std::span<const std::byte> bytes);
// Trusts nothing. False for anything that no writer makes, and for versions that this code does not know.
bool parse_commit_record(std::span<const std::byte> bytes, CommitRecord *record_out);
// The first bytes of a file, as many as a record has. Empty if they cannot be read.
std::vector<std::byte> read_commit_record(const Descriptor &file);

// ---- finishing ----

struct FolderRecord {
  std::shared_ptr<Folder> folder;
  CommitRecord record;
  bool committed = false;
  Descriptor file{};  // the record's, locked
};

// Replaces a pending record: complete, all old bytes, or all new ones. The caller has locked the folder.
void rewrite_record(FolderRecord &member, bool no_sync);

// Renames the record, unless that was done. In the lead's folder this is the commit.
void make_committed(FolderRecord &member);

// Gives the files of a committed set, in the given folders, their names, and removes the records. Can be repeated from
// any point. `named`: more folders to search for finished parts. Throws if a step is refused. Nothing is lost then, and
// a later call continues. The caller has locked the folders.
struct Finished {
  bool record_left = false;          // a record had to stay, because a folder that was not named needs it
  std::vector<std::string> missing;  // paths of shards that were removed from outside; their folder keeps its stale
                                     // files
  // Replaced files, still open. Freeing their memory or blocks takes long, and several threads can share the work.
  // Fewer if this process may open few files.
  std::vector<Descriptor> replaced;
};
Finished roll_forward(std::vector<FolderRecord> &members, const Folders &named, bool no_sync);
// Whether that would leave a record. Changes nothing.
bool leaves_record(const std::vector<FolderRecord> &members, const Folders &named);

// Shards of record.folder, of a set that counts, that no longer exist under either name. Throws if a file cannot be
// checked, because then nothing is proven.
std::vector<std::uint32_t> missing_here(const Folder &folder, const CommitRecord &record);

// Removes temporaries and records of a set that never counted. False if the lead's record had to stay, because some
// folders of the set are not known to be clean.
bool roll_back(std::vector<FolderRecord> &members, bool no_sync);

// Whether it is a shard file, or shard file `index` of that set, according to one of its ends. Throw if it cannot be
// read.
bool is_shard_file(const Folder &folder, const std::string &name);
bool is_shard_of(const Folder &folder, const std::string &name, const SetId &set_id, std::uint32_t index);
// The set of such a file, if it also has its full length.
std::optional<SetHeader> whole_shard_of(const Folder &folder, const std::string &name, const SetId &set_id,
                                        std::uint32_t index);

}  // namespace tandem::files
