// Reads blocks of a set, each checked; opens a shard file when the first block of it is wanted.
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
  explicit SetReader(const ShardSet &set);

  bool has(std::uint32_t shard) const { return !files_of_[shard].empty(); }
  // Places in ShardSet::files.
  const std::vector<std::size_t> &files_of(std::uint32_t shard) const { return files_of_[shard]; }

  // Reads block `stripe` of a shard into block_bytes at `block_out`. False when no file has it intact; `block_out` is
  // then undefined. Any thread.
  bool read_block(std::uint32_t shard, std::uint64_t stripe, std::byte *block_out);
  bool read_block_of_file(std::size_t file, std::uint64_t stripe, std::byte *block_out);

  std::uint64_t read_bytes() const { return read_bytes_.load(); }
  std::uint64_t bad_block_count() const { return bad_block_count_.load(); }
  std::uint32_t shards_read() const;

 private:
  struct OpenFile {
    std::once_flag once;
    Descriptor descriptor;
    std::atomic<bool> used{false};
  };

  const ShardSet &set_;
  std::vector<std::vector<std::size_t>> files_of_;
  std::unique_ptr<OpenFile[]> open_;
  std::atomic<std::uint64_t> read_bytes_{0}, bad_block_count_{0};
};

}  // namespace tandem::files
