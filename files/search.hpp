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
  std::size_t folder = 0;  // place in Search::folders
  std::uint32_t index = 0;
  std::uint32_t condition = 0;  // bits of enum tandem_files_condition
  std::uint64_t file_bytes = 0;
  // The place of the file's first byte, relative to its intact start and to its intact end: 0 and 0 in an intact file.
  // If the front was cut off, the second one is negative.
  std::int64_t bases[2] = {0, 0};
  std::uint32_t base_count = 0;
};

struct FoundSet {
  SetHeader header;
  std::vector<ShardFile> files;   // by index
  std::uint32_t shard_count = 0;  // different ones
};

struct Search {
  std::vector<FoundSet> sets;  // most complete first
  std::vector<std::string> ignored;
  std::string unread;                // why a file that may be a shard file could not be read: a sentence about the
                                     // first one
  bool vanished = false;             // a listed file was missing, or another one, when it was read
  std::string other_version;         // of `ignored`: the first shard file of another format version
  std::string out_of_limits;         // the same: the first one with numbers that no writer makes
  std::vector<std::string> folders;  // folders that were named, or that hold named files; each once

  // Throws INVALID_ARGUMENT (ambiguous or unknown), NOT_RECOVERABLE (no set), IO (unread) or UNSUPPORTED (only sets of
  // another version). An empty prefix matches all. Of several sets the only one with k shards or more is chosen.
  std::size_t choose(const std::string &set_id_prefix) const;
  // The same. Throws DAMAGED with a file's name if the header has a code that does not exist.
  std::size_t choose_to_code(const std::string &set_id_prefix) const;
};

// Throws IO if a file was replaced since the search, so that reading it proves nothing.
void check_current(const Search &search);

// Changes nothing. Remains of dead runs are treated as if they were cleaned up.
Search search(const std::vector<std::string> &paths);

}  // namespace tandem::files
