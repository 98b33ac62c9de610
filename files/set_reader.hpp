// SPDX-License-Identifier: Apache-2.0
// Reads blocks of a set, and checks each. Opens a shard file when its first block is read. If the process may not have
// so many files open, it closes all of them and continues.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "files/handles.hpp"
#include "files/io.hpp"
#include "files/search.hpp"

namespace tandem::files {

class SetReader {
 public:
  SetReader(const FoundSet &set, base::Timeline *timeline);

  bool has(std::uint32_t shard) const { return !files_of_[shard].empty(); }
  // Places in FoundSet::files.
  const std::vector<std::size_t> &files_of(std::uint32_t shard) const { return files_of_[shard]; }

  // Reads block `stripe` of a shard into block_bytes at `block_out`, and its payload's hash, unless that is NULL. False
  // if no file has it intact; `block_out` and `hash_out` are then undefined. Throws IO if no more files can be opened.
  // Any thread.
  bool read_block(std::uint32_t shard, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out = nullptr);
  bool read_block_of_file(std::size_t file, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out = nullptr);
  // The bytes at the place of that block, good or bad; zeros beyond the file. False if they cannot be read.
  bool read_raw_block(std::size_t file, std::uint64_t stripe, std::byte *block_out);

  // Throws IO if a file could not be opened or read, or was replaced since the search: missing blocks are then not
  // damage.
  void check_all_read() const;

  std::uint64_t read_bytes() const { return read_bytes_.load(); }
  std::uint64_t bad_block_count() const { return bad_block_count_.load(); }
  std::uint32_t shards_read() const;

 private:
  struct OpenFile {
    std::mutex mutex;                        // what follows
    std::shared_ptr<Descriptor> descriptor;  // a reading thread keeps it, even if it is closed for the others
    bool failed = false;                     // to open: not tried again
    std::atomic<bool> used{false};
  };

  std::shared_ptr<Descriptor> descriptor_of(std::size_t file);
  bool read_block_at(const Descriptor &descriptor, const ShardFile &shard, std::int64_t base, std::uint64_t stripe,
                     std::byte *block_out, Hash128 *hash_out = nullptr);
  void close_all();
  void lack(std::string why);

  const FoundSet &set_;
  base::Timeline *const timeline_;  // null: none is asked for
  std::vector<std::vector<std::size_t>> files_of_;
  std::unique_ptr<OpenFile[]> open_;
  mutable std::mutex mutex_;  // the next
  std::string lacks_;         // why the first unreadable file could not be read
  std::atomic<std::uint64_t> read_bytes_{0}, bad_block_count_{0};
};

}  // namespace tandem::files
