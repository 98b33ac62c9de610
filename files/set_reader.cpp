// SPDX-License-Identifier: Apache-2.0
#include "files/set_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/io_error.hpp"
#include "base/text.hpp"

namespace tandem::files {

SetReader::SetReader(const FoundSet &set, base::Timeline *timeline)
    : set_(set), timeline_(timeline), files_of_(set.header.shard_count()), open_(new OpenFile[set.files.size()]) {
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    files_of_[set.files[i].index].push_back(i);
    if (!set.files[i].unread.empty()) lack(set.files[i].unread);
  }
}

bool SetReader::read_block(std::uint32_t shard, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out) {
  for (const std::size_t file : files_of_[shard])
    if (read_block_of_file(file, stripe, block_out, hash_out)) return true;
  return false;
}

bool SetReader::read_block_at(const Descriptor &descriptor, const ShardFile &shard, std::int64_t base,
                              std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out) {
  const SetHeader &header = set_.header;
  const std::uint64_t payload_bytes = header.payload_bytes_of(stripe);
  const std::uint64_t block_bytes = payload_bytes + kCheckBytes;
  const std::int64_t offset = static_cast<std::int64_t>(header.block_offset(stripe)) + base;
  if (offset < 0) return false;
  {
    base::TimedStep read = step_of(timeline_, "read", header, stripe);
    const std::int64_t got = read_at(descriptor.get(), block_out, block_bytes, static_cast<std::uint64_t>(offset));
    if (got < 0) lack(base::text("cannot read ", shard.path, ": ", error_text(errno)));
    if (got > 0) read_bytes_.fetch_add(static_cast<std::uint64_t>(got), std::memory_order_relaxed);
    if (got != static_cast<std::int64_t>(block_bytes)) return false;
    read.add_bytes(block_bytes);
  }
  base::TimedStep hashing = step_of(timeline_, "hash", header, stripe);
  hashing.add_bytes(payload_bytes);
  const Hash128 hash = hash128(block_out, payload_bytes);
  if (hash_out != nullptr) *hash_out = hash;
  return block_check(header.set_id, shard.index, stripe, hash, payload_bytes) == read_check(block_out + payload_bytes);
}

bool SetReader::read_block_of_file(std::size_t file, std::uint64_t stripe, std::byte *block_out, Hash128 *hash_out) {
  const ShardFile &shard = set_.files[file];
  OpenFile &open = open_[file];
  const std::shared_ptr<Descriptor> descriptor = descriptor_of(file);
  bool good = false;
  for (std::uint32_t i = 0; descriptor && i < shard.base_count && !good; ++i)
    good = read_block_at(*descriptor, shard, shard.bases[i], stripe, block_out, hash_out);
  if (!open.used.load(std::memory_order_relaxed)) open.used.store(true, std::memory_order_relaxed);
  if (!good) bad_block_count_.fetch_add(1, std::memory_order_relaxed);
  return good;
}

bool SetReader::read_raw_block(std::size_t file, std::uint64_t stripe, std::byte *block_out) {
  const SetHeader &header = set_.header;
  const ShardFile &shard = set_.files[file];
  const std::shared_ptr<Descriptor> descriptor = descriptor_of(file);
  if (!descriptor) return false;
  // In a file with bytes cut out or inserted, a block has two possible places: it lies beside its neighbours.
  std::int64_t base = shard.bases[0];
  for (std::uint32_t i = shard.base_count; i-- > 0;)
    if ((stripe != 0 && read_block_at(*descriptor, shard, shard.bases[i], stripe - 1, block_out)) ||
        (stripe + 1 < header.stripe_count() &&
         read_block_at(*descriptor, shard, shard.bases[i], stripe + 1, block_out)))
      base = shard.bases[i];
  const std::uint64_t block_bytes = header.payload_bytes_of(stripe) + kCheckBytes;
  const std::int64_t offset = static_cast<std::int64_t>(header.block_offset(stripe)) + base;
  const std::uint64_t cut_off = offset < 0 ? std::min(static_cast<std::uint64_t>(-offset), block_bytes) : 0;
  std::fill_n(block_out, block_bytes, std::byte{0});
  return cut_off == block_bytes || read_at(descriptor->get(), block_out + cut_off, block_bytes - cut_off,
                                           static_cast<std::uint64_t>(std::max<std::int64_t>(offset, 0))) >= 0;
}

std::shared_ptr<Descriptor> SetReader::descriptor_of(std::size_t file) {
  OpenFile &open = open_[file];
  const std::string &path = set_.files[file].path;
  constexpr int kMostTries = 100;
  for (int tries = 1;; ++tries) {
    {
      const std::lock_guard lock(open.mutex);
      if (open.descriptor || open.failed) return open.descriptor;
      Descriptor opened = open_to_read(path);
      struct stat status;
      if (opened && fstat(opened.get(), &status) == 0 &&
          std::pair(status.st_dev, status.st_ino) != set_.files[file].identity) {
        lack(base::text(path, " was replaced since it was found: another file has its name now"));
        open.failed = true;
        return nullptr;
      }
      if (opened) {
        posix_fadvise(opened.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
        return open.descriptor = std::make_shared<Descriptor>(std::move(opened));
      }
      if (!is_out_of_resources(errno)) {
        lack(base::text("cannot open ", path, ": ", error_text(errno)));
        open.failed = true;
        return nullptr;
      }
      if (tries == kMostTries) fail_io("open", path, errno);
    }
    // Not under the lock: two threads would wait for each other's.
    close_all();
    // other threads read from theirs, or open them
    if (tries > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void SetReader::lack(std::string why) {
  const std::lock_guard lock(mutex_);
  if (lacks_.empty()) lacks_ = std::move(why);
}

void SetReader::check_all_read() const {
  const std::lock_guard lock(mutex_);
  if (!lacks_.empty()) fail(TANDEM_ERROR_IO, lacks_);
}

void SetReader::close_all() {
  for (std::size_t i = 0; i < set_.files.size(); ++i) {
    const std::lock_guard lock(open_[i].mutex);
    open_[i].descriptor.reset();
  }
}

std::uint32_t SetReader::shards_read() const {
  std::uint32_t count = 0;
  for (const std::vector<std::size_t> &files : files_of_)
    count += std::ranges::any_of(files, [&](std::size_t file) { return open_[file].used.load(); }) ? 1 : 0;
  return count;
}

}  // namespace tandem::files
