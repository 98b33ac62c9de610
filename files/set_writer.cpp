// SPDX-License-Identifier: Apache-2.0
#include "files/set_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/calls.hpp"
#include "files/io.hpp"
#include "files/placement.hpp"
#include "files/recoverable.hpp"
#include "files/workers.hpp"
#include "tandem/tools.h"

namespace tandem::files {
namespace {

constexpr std::uint64_t kWritebackBytes = 8u << 20;  // of a shard file, after which the disk is told to begin
constexpr const char *kCommitFailed = "the writer's commit has failed; it can only be destroyed";

std::string set_name(const tandem_files_encode_options &options, std::uint32_t shard_count) {
  std::string name = options.name != nullptr          ? options.name
                     : options.source_path != nullptr ? name_of(options.source_path)
                                                      : "stdin";
  if (!is_set_name(name, shard_count))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", name,
         "\" cannot be the name of shard files: it is empty, has a / or more than ", max_set_name_bytes(shard_count),
         " bytes");
  return name;
}

std::vector<std::string> folders_of_shards(const tandem_files_encode_options &options, std::uint32_t shard_count) {
  std::vector<std::string> folders;
  for (std::uint32_t i = 0; i < shard_count; ++i)
    folders.push_back(without_trailing_slashes(options.folders[i % options.folder_count]));
  return folders;
}

SetHeader new_header(const tandem_files_encode_options &options, std::uint64_t content_bytes, std::uint32_t mode) {
  SetHeader header;
  header.k = options.k;
  header.m = options.m;
  header.matrix = options.matrix;
  if (options.matrix == TANDEM_MATRIX_CUSTOM)
    fail(TANDEM_ERROR_UNSUPPORTED, "a shard set cannot hold a custom matrix; choose a preset");
  const std::uint32_t traits = tandem_matrix_traits(options.matrix);
  if ((traits & TANDEM_MATRIX_HAS_LOCAL_GROUPS) != 0)
    fail(TANDEM_ERROR_UNSUPPORTED, "matrix ", tandem_matrix_name(options.matrix),
         " has local groups, and a shard set does not hold their number");
  header.field = (traits & TANDEM_MATRIX_IS_GF16) != 0 ? TANDEM_FIELD_GF16 : TANDEM_FIELD_GF8;
  header.mode = options.mode != 0 ? options.mode : mode;
  if (content_bytes != TANDEM_FILES_UNKNOWN_BYTES) header.content_bytes = content_bytes;
  if (options.k >= 1 && options.k <= kMaxShardCount && options.m <= kMaxShardCount - options.k)
    header.block_bytes = options.block_bytes != 0 ? options.block_bytes : default_block_bytes(options.k + options.m);
  if (const auto why = out_of_limits(header)) fail(TANDEM_ERROR_INVALID_ARGUMENT, *why);
  if (options.set_id != nullptr) {
    std::memcpy(header.set_id.data(), options.set_id, header.set_id.size());
  } else {
    random_bytes(header.set_id);
  }
  return header;
}

}  // namespace

SetWriter::SetWriter(tandem_context *context, const tandem_files_encode_options &options, std::uint64_t content_bytes,
                     std::uint32_t mode, std::function<void()> check_cancelled)
    : context_(context),
      team_(options.team),
      thread_count_(options.thread_count),
      progress_(options.progress),
      progress_user_(options.progress_user),
      is_stream_(content_bytes == TANDEM_FILES_UNKNOWN_BYTES),
      written_(team_.leads()),
      coder_(context, options.k, options.m) {
  header_ = new_header(options, content_bytes, mode);
  if (options.folders == nullptr || options.folder_count == 0 || options.folder_count > kMaxShardCount)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, options.folder_count, " folders given; 1 to k + m are possible");
  base::read_strings(options.folders, options.folder_count, "folders");  // none is NULL
  codec_ = make_codec(header_, options.allow_non_mds != 0);
  any_k_suffice_ = any_k_suffice(header_);
  folders_ = folders_of_shards(options, header_.shard_count());
  options_.set_id = header_.set_id;
  header_.name = options_.name = set_name(options, header_.shard_count());
  options_.mode = header_.mode;
  options_.force = options.force != 0;
  options_.no_sync = options.no_sync != 0;
  if (options.lock_wait_seconds != 0) options_.wait.seconds = options.lock_wait_seconds;
  options_.wait.check_cancelled = std::move(check_cancelled);
  options_.note = [note = options.note, user = options.note_user](const std::string &text) {
    if (note != nullptr) note(user, text.c_str());
  };
  if (team_.leads() && header_.m == 0) options_.note("m is 0: no shard may be lost, and damage cannot be repaired");
  Layout layout(header_);
  for (std::uint32_t shard = 0; shard < header_.shard_count(); ++shard) layout.add(folders_[shard], shard);
  if (team_.leads() && layout.count(folders_[0]) < header_.shard_count())
    for (const std::string &sentence : layout.crowded(context, true)) options_.note(sentence);
}

void SetWriter::check_folders() {
  std::map<dev_t, std::uint64_t> needed_bytes;
  Folders there;
  for (const std::string &folder : folders_) {
    struct stat status;
    std::string writable = folder;
    while (stat(writable.c_str(), &status) != 0) {
      const std::string above = folder_of(writable);
      if (errno != ENOENT || above == writable) fail_io("make the folder", folder, errno);
      writable = above;
    }
    const bool exists = writable == folder;
    if (!S_ISDIR(status.st_mode)) fail_io("write to", writable, ENOTDIR);
    if (faccessat(AT_FDCWD, writable.c_str(), W_OK | X_OK, AT_EACCESS) != 0) fail_io("write to", writable, errno);
    if (exists) add_folder(there, folder);
    struct statvfs space;
    std::uint64_t &needed = needed_bytes[status.st_dev];
    needed += is_stream_ ? 0 : header_.shard_file_bytes();
    if (statvfs(writable.c_str(), &space) == 0 && needed > std::uint64_t{space.f_bavail} * space.f_frsize)
      fail(TANDEM_ERROR_IO, writable, " has ", std::uint64_t{space.f_bavail} * space.f_frsize,
           " bytes free, and at least ", needed, " are needed");
  }
  for (std::uint32_t i = 0; i < header_.shard_count(); ++i)
    check_name_free(folders_[i], options_.name, i, options_.force);
  // The folders as they would be after a clean-up.
  const FoldersLock lock(there, options_.wait);
  const Recovered recovered = recover(there, CleanUp::dry_run);
  for (const std::string &text : recovered.notes) options_.note(text);
  (void)sets_to_replace(there, options_, recovered.removed);
}

void SetWriter::begin() {
  std::array<std::byte, kRecordBytes> plan;
  team_.share(header_.set_id);
  write_record({header_, 0, RecordEnd::start}, plan);
  std::array<std::byte, kRecordBytes> leading = plan;
  team_.share(leading);
  team_.together([&] {
    if (plan != leading)
      fail(TANDEM_ERROR_INVALID_ARGUMENT,
           "k, m, matrix, block_bytes, mode or the length of the content is not that of process 0");
    options_.set_id = header_.set_id;
    if (team_.leads()) files_.emplace(options_, folders_);
  });
  options_.joins = !team_.leads();
  team_.together([&] {
    if (!team_.leads()) files_.emplace(options_, folders_);
  });
}

std::vector<Hash128> SetWriter::hash_data(std::uint64_t first, std::uint64_t content_bytes,
                                          const BatchBuffers &buffers) const {
  std::vector<Hash128> hashes;
  for (std::uint64_t i = 0, left = content_bytes; left != 0; ++i) {
    const std::uint64_t of_stripe = std::min(left, header_.stripe_data_bytes());
    hashes.resize(hashes.size() + header_.k);
    hash_payloads(first + i, of_stripe, buffers[i], std::span(hashes).last(header_.k));
    left -= of_stripe;
  }
  return hashes;
}

void SetWriter::hash_payloads(std::uint64_t stripe, std::uint64_t content_bytes, const ShardBuffers &buffers,
                              std::span<Hash128> hashes_out) const {
  base::TimedStep step = step_of(base::timeline_of(context_), "hash", header_, stripe);
  const std::uint64_t payload_bytes = header_.payload_bytes_for(content_bytes);
  for (std::uint32_t i = 0; i < header_.k; ++i) {
    const std::uint64_t length = std::min(payload_bytes, content_bytes - std::min(i * payload_bytes, content_bytes));
    if (length < payload_bytes) std::memset(buffers.at(i) + length, 0, payload_bytes - length);
    hashes_out[i] = hash128(buffers.at(i), payload_bytes);
    step.add_bytes(payload_bytes);
  }
}

void SetWriter::write_stripes(std::uint64_t first, std::uint64_t content_bytes, std::span<const Hash128> hashes,
                              const BatchBuffers &buffers, std::uint64_t piece_bytes) {
  std::vector<tandem_stripe> stripes;
  for (std::uint64_t left = content_bytes; left != 0;) {
    const std::uint64_t of_stripe = std::min(left, header_.stripe_data_bytes());
    tandem_stripe stripe = {};
    stripe.shards = buffers[stripes.size()].pointers();
    stripe.shard_bytes = header_.payload_bytes_for(of_stripe);
    stripes.push_back(stripe);
    left -= of_stripe;
  }
  coder_.encode(codec_.get(), stripes, piece_bytes);
  for (std::size_t i = 0; i < stripes.size(); ++i)
    write_blocks(first + i, stripes[i].shard_bytes, hashes.subspan(i * header_.k, header_.k), buffers[i]);
  content_bytes_.fetch_add(content_bytes, std::memory_order_relaxed);
}

void SetWriter::write_blocks(std::uint64_t stripe, std::uint64_t payload_bytes, std::span<const Hash128> hashes,
                             const ShardBuffers &buffers) {
  const std::uint32_t k = header_.k, n = header_.shard_count();
  base::Timeline *timeline = base::timeline_of(context_);
  {
    base::TimedStep step = step_of(timeline, "hash", header_, stripe);
    for (std::uint32_t i = 0; i < n; ++i) {
      const Hash128 hash = i < k ? hashes[i] : hash128(buffers.at(i), payload_bytes);
      write_check(block_check(header_.set_id, i, stripe, hash, payload_bytes), buffers.at(i) + payload_bytes);
    }
    step.add_bytes(header_.m * payload_bytes);
  }
  base::TimedStep step = step_of(timeline, "write", header_, stripe);
  // The files take turns, by stripe + i: so the disk gets an even load.
  const std::uint64_t stripes_per_writeback = std::max<std::uint64_t>(kWritebackBytes / header_.block_bytes, 1);
  // Each worker starts with another file: two writers to one file wait for each other in the kernel.
  const std::uint32_t first = static_cast<std::uint32_t>(stripe * 7 % n);
  for (std::uint32_t turn = 0; turn < n; ++turn) {
    const std::uint32_t i = (first + turn) % n;
    if (!write_at(files_->descriptor(i), buffers.at(i), payload_bytes + kCheckBytes, header_.block_offset(stripe)))
      fail_io("write", files_->path(i), errno);
    step.add_bytes(payload_bytes + kCheckBytes);
    if (!options_.no_sync && (stripe + i) % stripes_per_writeback == stripes_per_writeback - 1)
      base::start_writeback(files_->descriptor(i));
  }
  written_bytes_.fetch_add(n * (payload_bytes + kCheckBytes), std::memory_order_relaxed);
}

void SetWriter::check_open() const {
  if (over_ != nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, over_);
}

void SetWriter::write_range(std::uint64_t first_stripe, std::uint64_t stripe_count,
                            std::span<const std::byte> content) {
  check_open();
  written_.take(first_stripe, stripe_count, header_.stripe_count());
  if (stripe_count == 0) return;
  try {
    const std::uint64_t first_byte = first_stripe * header_.stripe_data_bytes();
    const std::uint64_t bytes = header_.content_bytes_of(first_stripe, stripe_count);
    if (content.size() != bytes)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, stripe_count, " stripes from ", first_stripe, " on have ", bytes,
           " bytes of content, ", content.size(), " are given");
    std::vector<Hash128> hashes(stripe_count * header_.k);
    const Division division = divide(context_, thread_count_, header_, stripe_count);
    base::Meter meter(progress_, progress_user_, bytes);
    std::atomic<std::uint64_t> next{0};
    run_workers(context_, division.worker_count, meter, nullptr, [&](std::size_t) {
      const SpareBuffers::Loan loan(spare_buffers_, header_, division.batch_stripes);
      const BatchBuffers &buffers = *loan;
      for (std::uint64_t i; !meter.stopped().load() && (i = next.fetch_add(buffers.size())) < stripe_count;) {
        const std::uint64_t first = first_stripe + i, count = std::min<std::uint64_t>(buffers.size(), stripe_count - i);
        const std::byte *const begin = content.data() + (first * header_.stripe_data_bytes() - first_byte);
        const std::byte *from = begin;
        for (std::uint64_t place = 0; place < count; ++place)
          for (const iovec &piece : content_pieces(buffers[place], header_, first + place)) {
            std::memcpy(piece.iov_base, from, piece.iov_len);
            from += piece.iov_len;
          }
        const auto batch_bytes = static_cast<std::uint64_t>(from - begin);
        const std::vector<Hash128> of_batch = hash_data(first, batch_bytes, buffers);
        write_stripes(first, batch_bytes, of_batch, buffers, division.piece_bytes);
        std::ranges::copy(of_batch, hashes.begin() + static_cast<std::ptrdiff_t>(i * header_.k));
        meter.done(batch_bytes);
      }
    });
    written_.add(first_stripe, std::move(hashes));
  } catch (...) {
    written_.give_back(first_stripe);
    throw;
  }
}

void SetWriter::write_records(std::uint32_t shard) {
  std::array<std::byte, kRecordBytes> bytes;
  for (const RecordEnd end : {RecordEnd::end, RecordEnd::start}) {
    write_record({header_, shard, end}, bytes);
    const std::uint64_t at = end == RecordEnd::start ? 0 : header_.shard_file_bytes() - kRecordBytes;
    if (!write_at(files_->descriptor(shard), bytes.data(), bytes.size(), at))
      fail_io("write", files_->path(shard), errno);
    written_bytes_.fetch_add(bytes.size());
  }
}

void SetWriter::commit_ranges() {
  team_.together([&] { check_open(); });
  over_ = kCommitFailed;
  written_.hand_over(team_, header_.stripe_count());
  try {
    team_.together([&] {
      if (team_.leads()) written_.check_complete(header_.stripe_count());
    });
  } catch (const Error &) {
    over_ = nullptr;  // the missing stripes can still be written
    throw;
  }
  commit(header_.content_bytes, [] {});
}

void SetWriter::commit(std::uint64_t content_bytes, const std::function<void()> &check_source) {
  over_ = kCommitFailed;
  header_.content_bytes = content_bytes;
  header_.digest = written_.digest(content_bytes);
  team_.share(header_.digest);
  team_.together([&] { finish_files(check_source); });
  // A start record says that everything before it is on the disk: the stripes of all processes.
  team_.together([&] {
    if (!team_.leads()) return;
    header_.folder_count = files_->folders_in_turn();
    let_go(files_->commit([this](std::uint32_t shard, const std::vector<SetId> &replaced) {
      header_.replaced = replaced;
      write_records(shard);
    }));
  });
  over_ = "the writer's commit has ended; nothing more can be written";
}

void SetWriter::finish_files(const std::function<void()> &check_source) {
  for (std::uint32_t i = 0; i < header_.shard_count(); ++i) {
    const base::TimedStep step(options_.no_sync ? nullptr : base::timeline_of(context_), "sync", 0,
                               header_.content_bytes);
    files_->finish(i);
    options_.wait.check_cancelled();  // a sync can take long
  }
  check_source();
}

// The last descriptor of a file without a name: closing it frees the file's memory or blocks. For a memory-backed file
// that takes a third of the time of writing it.
void SetWriter::let_go(std::vector<Descriptor> replaced) const {
  if (replaced.empty()) return;
  try {
    base::Crew crew(worker_count_for(context_, thread_count_, 0, replaced.size()) - 1);
    crew.run(replaced.size(), [&](std::size_t i) { replaced[i].reset(); });
  } catch (const std::exception &) {  // the set is complete, and the files are closed here
  }
}

tandem_files_result SetWriter::result() const {
  auto result = description_of<tandem_files_result>(header_, any_k_suffice_);
  result.read_bytes = content_bytes_.load();
  result.written_bytes = written_bytes_.load();
  result.coding_seconds = coder_.seconds();
  result.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return result;
}

}  // namespace tandem::files
