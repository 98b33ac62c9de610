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
  // Where the file's first byte would lie, seen from its intact start and from its intact end: 0 and 0 in an intact
  // file. A file whose front was cut off has a negative one, seen from its end.
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
  std::string unread;                // why the first file that may be a shard file could not be looked at, a sentence
  bool vanished = false;             // a file that was listed was gone, or another one, when it was looked at
  std::string other_version;         // of `ignored`, the first that is a shard file of another format version
  std::string out_of_limits;         // the same, with numbers that no writer makes
  std::vector<std::string> folders;  // that were named, or hold files that were; each once

  // Throws INVALID_ARGUMENT (ambiguous or unknown), NOT_RECOVERABLE (nothing there), IO (unread) or UNSUPPORTED (what
  // is there is of another version). An empty prefix means any. Of several sets it is the only one with k shards or
  // more.
  std::size_t choose(const std::string &set_id_prefix) const;
  // The same, and throws DAMAGED with a file's name where the header asks for a code that there is not.
  std::size_t choose_to_code(const std::string &set_id_prefix) const;
};

// Throws IO where a file is not the one any more that was found, so that nothing follows from what reading it shows.
void check_current(const Search &search);

// Changes nothing. What a run that died left is seen as if it were cleaned up.
Search search(const std::vector<std::string> &paths);

}  // namespace tandem::files
