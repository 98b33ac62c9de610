// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "mpi/encode.hpp"
#include "mpi/error.hpp"
#include "mpi/local_file.hpp"
#include "mpi/rounds.hpp"
#include "mpi/structs.hpp"

namespace tandem::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// The output file: rank 0 makes and names it, the others open it.
class Output {
 public:
  Output(const tandem_files_decode_options &options, std::uint32_t mode)
      : options_(options), path_(options.output_path), mode_(mode) {}

  // Rank 0; returns the temporary's path.
  std::string make() {
    check_name();
    const auto folder = std::make_shared<Folder>(folder_of(path_));
    const char *const folder_name = folder->path().c_str();
    constexpr std::uint32_t kLockSeconds = 60;
    const std::uint32_t seconds = options_.lock_wait_seconds != 0 ? options_.lock_wait_seconds : kLockSeconds;
    check(tandem_files_recover(&folder_name, 1, nullptr, nullptr));
    const base::FoldersLock lock({folder}, {.seconds = seconds});
    // FORMAT.md, section 8: a later clean-up removes it if this process dies.
    pending_.emplace(folder, "." + base::random_hexadecimal(16) + ".tandem-tmp", mode_);
    return pending_->path();
  }
  void check_name() const {
    struct stat status;
    if (stat(path_.c_str(), &status) != 0) return;
    if (!S_ISREG(status.st_mode))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is no regular file: ranks share no stream", path_));
    if (options_.force == 0) fail(TANDEM_ERROR_IO, fmt::format("{} exists; use --force to replace it", path_));
  }
  // The others.
  void join(const std::string &temporary) {
    joined_ = Descriptor(open(temporary.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!joined_) fail_io("open", temporary, errno);
  }
  void write(std::span<const std::byte> bytes, std::uint64_t offset) { write_at(descriptor(), path_, bytes, offset); }
  void finish() {
    const bool no_sync = options_.no_sync != 0;
    if (pending_)
      pending_->finish(no_sync);
    else if (!no_sync)
      sync_file(joined_.get(), path_);
  }
  void name() { pending_->rename(name_of(path_), options_.force != 0, options_.no_sync != 0); }

 private:
  int descriptor() const { return pending_ ? pending_->descriptor() : joined_.get(); }

  const tandem_files_decode_options &options_;
  std::string path_;
  std::uint32_t mode_;
  std::optional<PendingFile> pending_;
  Descriptor joined_;
};

bool is_same_set(const tandem_files_set &a, const tandem_files_set &b) {
  return std::memcmp(a.set_id, b.set_id, sizeof a.set_id) == 0 &&
         std::memcmp(a.digest, b.digest, sizeof a.digest) == 0 && a.k == b.k && a.m == b.m && a.matrix == b.matrix &&
         a.block_bytes == b.block_bytes && a.content_bytes == b.content_bytes && a.stripe_count == b.stripe_count &&
         a.mode == b.mode;
}

}  // namespace

Outcome decode(const World &world, tandem_context *context, const char *const *paths, std::size_t path_count,
               const tandem_files_decode_options *given) {
  const Clock::time_point began = Clock::now();
  tandem_files_decode_options options = {};
  std::string path_list;
  auto info = sized<tandem_context_info>();
  world.together([&] {
    check(tandem_context_query(context, &info));
    options = read_options(given, "tandem_files_decode_options");
    if (options.output_path == nullptr || options.output_descriptor != 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranks write the file that output_path names, and no descriptor");
    if (options.salvage != 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "salvage is for one process: use tandem_files_decode");
    path_list = listed(paths, path_count, "paths");
  });
  world.require_equal({{"output_path", options.output_path},
                       {"paths", path_list},
                       {"set_id_prefix", options.set_id_prefix != nullptr ? options.set_id_prefix : "none"},
                       {"force", std::to_string(options.force != 0)},
                       {"no_sync", std::to_string(options.no_sync != 0)},
                       {"dry_run", std::to_string(options.dry_run != 0)}});

  std::unique_ptr<tandem_files_search, Destroy> search;
  std::unique_ptr<tandem_files_reader, Destroy> reader;
  auto set = sized<tandem_files_set>();
  world.together([&] {
    tandem_files_search *found = nullptr;
    check(tandem_files_search_create(paths, path_count, &found));
    search.reset(found);
    std::size_t index = 0;
    check(tandem_files_search_choose(found, options.set_id_prefix, &index));
    check(tandem_files_search_set(found, index, &set));
    auto reading = sized<tandem_files_reader_options>();
    reading.set_id_prefix = options.set_id_prefix;
    reading.thread_count = options.thread_count;
    tandem_files_reader *raw = nullptr;
    check(tandem_files_reader_create(context, found, &reading, &raw));
    reader.reset(raw);
    if (set.shard_count < set.k)
      fail(TANDEM_ERROR_NOT_RECOVERABLE,
           fmt::format("{} of {} shards found, {} are needed", set.shard_count, set.k + set.m, set.k));
  });
  tandem_files_set leading = set;
  world.broadcast(&leading, sizeof leading);
  world.together([&] {
    if (!is_same_set(set, leading)) fail(TANDEM_ERROR_IO, "the paths hold another set here than on rank 0");
  });

  std::optional<Output> output;
  std::string temporary;
  if (options.dry_run == 0) {
    world.together([&] {
      output.emplace(options, set.mode);
      if (world.leads()) temporary = output->make();
    });
    temporary = world.broadcast(temporary);
    world.together([&] {
      if (!world.leads()) output->join(temporary);
    });
  }
  Progress progress(options.progress, options.progress_user, world.size(), set.content_bytes);
  const Rounds rounds(set, world.size());
  std::vector<std::byte> content, hashes;
  std::uint64_t written_bytes = 0;
  world.together([&] { content.resize(rounds.most_bytes()); });
  for (std::uint64_t round = 0; round < rounds.count(); ++round) {
    const Part part = rounds.part(round, world.rank());
    const std::span<std::byte> bytes(content.data(), rounds.byte_count(part));
    world.together([&] {
      progress.begin_round(rounds, round);
      progress.check_cancelled();
      hashes.resize(rounds.hash_bytes(part));
      check(tandem_files_reader_read_stripes(reader.get(), part.first, part.count, bytes.data(), bytes.size(),
                                             hashes.data()));
      if (!output) return;
      output->write(bytes, rounds.first_byte(part));
      written_bytes += bytes.size();
    });
    const std::vector<std::size_t> lengths = rounds.hash_bytes_of(round);
    const std::vector<std::byte> all = world.gather(hashes, lengths);
    world.together([&] {
      std::size_t at = 0;
      for (int rank = 0; world.leads() && rank < world.size(); ++rank) {
        const Part theirs = rounds.part(round, rank);
        const std::size_t length = lengths[static_cast<std::size_t>(rank)];
        check(tandem_files_reader_add(reader.get(), theirs.first, theirs.count, all.data() + at, length));
        at += length;
      }
    });
  }
  world.together([&] {
    if (world.leads()) check(tandem_files_reader_check(reader.get()));
    if (output) output->finish();
  });
  auto result = sized<tandem_files_result>();
  world.together([&] {
    if (world.leads() && output) output->name();
    check(tandem_files_reader_query(reader.get(), &result));
  });
  result.written_bytes = written_bytes;
  result.thread_count = options.thread_count != 0 ? options.thread_count : info.caller_count;
  Outcome outcome{add_up(world, result, result), work_of(world, result.read_bytes)};
  outcome.files.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return outcome;
}

}  // namespace tandem::mpi
