#include "files/set_reader.hpp"

#include <fcntl.h>

namespace tandem::files {

SetReader::SetReader(const ShardSet &set)
    : set_(set), files_of_(set.header.shard_count()), open_(new OpenFile[set.files.size()]) {
  for (std::size_t i = 0; i < set.files.size(); ++i) files_of_[set.files[i].index].push_back(i);
}

bool SetReader::read_block(std::uint32_t shard, std::uint64_t stripe, std::byte *block_out) {
  for (const std::size_t file : files_of_[shard])
    if (read_block_of_file(file, stripe, block_out)) return true;
  return false;
}

bool SetReader::read_block_of_file(std::size_t file, std::uint64_t stripe, std::byte *block_out) {
  const SetHeader &header = set_.header;
  const ShardFile &shard = set_.files[file];
  OpenFile &open = open_[file];
  std::call_once(open.once, [&] {
    open.descriptor = open_to_read(shard.path);
    if (open.descriptor) posix_fadvise(open.descriptor.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  });
  const std::uint64_t payload_bytes = header.payload_bytes_of(stripe);
  const std::uint64_t block_bytes = payload_bytes + kCheckBytes;
  bool good = false;
  for (std::uint32_t i = 0; open.descriptor && i < shard.base_count && !good; ++i) {
    const std::int64_t offset = static_cast<std::int64_t>(header.block_offset(stripe)) + shard.bases[i];
    if (offset < 0) continue;
    // A read error counts as a bad block: the other shards can make up for it.
    const std::int64_t got = read_at(open.descriptor.get(), block_out, block_bytes, static_cast<std::uint64_t>(offset));
    if (got > 0) read_bytes_.fetch_add(static_cast<std::uint64_t>(got), std::memory_order_relaxed);
    good = got == static_cast<std::int64_t>(block_bytes) &&
           block_check(header.set_id, shard.index, stripe, block_out, payload_bytes) ==
               read_check(block_out + payload_bytes);
  }
  if (!open.used.load(std::memory_order_relaxed)) open.used.store(true, std::memory_order_relaxed);
  if (!good) bad_block_count_.fetch_add(1, std::memory_order_relaxed);
  return good;
}

std::uint32_t SetReader::shards_read() const {
  std::uint32_t count = 0;
  for (const std::vector<std::size_t> &files : files_of_)
    count += std::any_of(files.begin(), files.end(), [&](std::size_t file) { return open_[file].used.load(); }) ? 1 : 0;
  return count;
}

}  // namespace tandem::files
