// Reads blocks of a set, each checked; opens a shard file when the first block of it is wanted. Where the process may
// not have as many files open as the set has, it closes them all and goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "files/handles.hpp"
#include "files/io.hpp"
#include "files/search.hpp"

namespace tandem::files {

// Says nothing about the file that was to be opened: it is not damaged.
bool is_out_of_resources(int error_number) noexcept;

class SetReader {
 public:
  SetReader(const FoundSet &set, base::Timeline *timeline);

  bool has(std::uint32_t shard) const { return !files_of_[shard].empty(); }
  // Places in FoundSet::files.
  const std::vector<std::size_t> &files_of(std::uint32_t shard) const { return files_of_[shard]; }

  // Reads block `stripe` of a shard into block_bytes at `block_out`; its payload's hash too, unless that is NULL. False
  // when no file has it intact; what is at `block_out` and `hash_out` is then undefined. Throws IO where no more files
  // can be opened. Any thread.
  bool read_block(std::uint32_t shard, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out = nullptr);
  bool read_block_of_file(std::size_t file, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out = nullptr);
  // The bytes that lie where that block belongs, good or bad; zeros where the file has none. False when they cannot be
  // read.
  bool read_raw_block(std::size_t file, std::uint64_t stripe, std::byte *block_out);

  // Throws IO where a file could not be opened, or is not the one any more that the search has found: what is missing
  // then is not damaged.
  void check_opened() const;

  std::uint64_t read_bytes() const { return read_bytes_.load(); }
  std::uint64_t bad_block_count() const { return bad_block_count_.load(); }
  std::uint32_t shards_read() const;

 private:
  struct OpenFile {
    std::mutex mutex;                        // what follows
    std::shared_ptr<Descriptor> descriptor;  // kept by who reads from it, also when it is closed for the others
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
  std::string lacks_;         // why the first file that could not be opened could not
  std::atomic<std::uint64_t> read_bytes_{0}, bad_block_count_{0};
};

}  // namespace tandem::files
