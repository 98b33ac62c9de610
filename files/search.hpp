// SPDX-License-Identifier: Apache-2.0
// Finds shard files and sorts them into sets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "files/format.hpp"

namespace tandem::files {

struct ShardFile {
  std::string path;
  std::pair<dev_t, ino_t> identity{};
  SetHeader header;        // of its records; of the set, if it has none
  std::size_t folder = 0;  // place in Search::folders
  std::uint32_t index = 0;
  std::uint32_t condition = 0;  // bits of enum tandem_files_condition_value
  std::string unread;           // a sentence, if an end of it could not be read: it may be intact
  std::uint64_t file_bytes = 0;
  // The place of the file's first byte, relative to its intact start and to its intact end: 0 and 0 in an intact file.
  // If the front was cut off, the second one is negative.
  std::int64_t bases[2] = {0, 0};
  std::uint32_t base_count = 0;
  bool operator==(const ShardFile &) const = default;
};

struct FoundSet {
  SetHeader header;
  std::vector<ShardFile> files;   // by index
  std::string name;               // see name_of_files; of files with the id's name, that of the header
  std::uint32_t shard_count = 0;  // different ones
  SetId replaced_by{};            // a set that can be decoded and lists this one; {}: none
  bool operator==(const FoundSet &) const = default;
};

struct Search {
  std::vector<std::string> paths;
  std::vector<FoundSet> sets;  // most complete first
  std::vector<std::string> ignored;
  std::vector<std::string> unread;   // sentences: why files that may be shard files could not be read
  std::string vanished;              // a sentence about the first listed file that did not exist any more
  std::string other_version;         // of `ignored`: the first shard file of another format version
  std::string unusable;              // the same: the first damaged one, or with numbers that no writer makes
  std::vector<std::string> folders;  // folders that were named, or that hold named files; each once

  // Why there may be more shard files than were found; empty: all files were read.
  std::string not_read() const { return unread.empty() ? vanished : unread.front(); }
  // Throws INVALID_ARGUMENT (ambiguous or unknown), IO (no set, or unread), UNSUPPORTED (only sets of another version)
  // or NOT_RECOVERABLE. Empty words match all. Of several sets the only one with k shards or more is chosen.
  std::size_t choose(const std::string &set_id_prefix, const std::string &name) const;
  // The same. Throws DAMAGED with a file's name if the header has a code that does not exist.
  std::size_t choose_to_code(const std::string &set_id_prefix) const;
};

// The first part of "NAME.003.tandem" that most files have with the number of their shard; "": none has.
std::string name_of_files(const FoundSet &set);

// Throw IO if a file, of all sets or of one, was replaced since the search, so that reading it proves nothing.
void check_current(const Search &search);
void check_current(const Search &search, const FoundSet &set);
// Throws IO if a set that lacks a shard, or cannot be recovered, may have more in a file that could not be read.
void check_all_read(const Search &search, const FoundSet &set, bool recoverable = false);

// Changes nothing. Remains of dead runs are treated as if they were cleaned up.
Search search(const std::vector<std::string> &paths);

// The smallest m of a record. Less than that of the set: a resize is not finished.
std::uint32_t least_m(const FoundSet &set);
// Shards that have no file.
std::vector<std::uint32_t> missing_shards(const FoundSet &set);
// By rank, if their blocks are intact.
bool has_enough_shards(const FoundSet &set);
// Shards with a file, and those that need none.
std::uint32_t known_shard_count(const FoundSet &set);

}  // namespace tandem::files
