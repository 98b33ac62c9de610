// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/calls.hpp"
#include "files/handles.hpp"
#include "files/ranges.hpp"
#include "files/recoverable.hpp"
#include "files/stripe_source.hpp"
#include "files/team.hpp"
#include "files/unfinished.hpp"
#include "files/verify.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

// Where the content goes: a pending regular file, written at offsets, or a stream, written in order, or nowhere.
class Sink {
 public:
  // Throws what check_cancelled throws, while it waits for the reader of a named pipe or a locked folder.
  Sink(const tandem_files_decode_options &options, const FoundSet &set, const Team &team,
       const std::function<void()> &check_cancelled) {
    const bool dry_run = options.dry_run != 0;
    if (options.salvage != 0 && options.output_path == nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT,
           "output_path is NULL: salvage writes a file, as a stream cannot say where its "
           "holes are");
    if (options.output_path == nullptr) {
      name_ = "the output stream";
      if (!dry_run) stream_ = options.output_descriptor;
      return;
    }
    name_ = options.output_path;
    struct stat status;
    if (stat(name_.c_str(), &status) == 0) {
      if (S_ISDIR(status.st_mode)) fail_io("write", name_, EISDIR);
      if (!S_ISREG(status.st_mode) && !team.is_alone())
        fail(TANDEM_ERROR_INVALID_ARGUMENT, name_, " is no regular file: several processes share no stream");
      if (!S_ISREG(status.st_mode) && options.salvage != 0)
        fail(TANDEM_ERROR_INVALID_ARGUMENT, name_,
             " is no regular file: salvage writes a file, as a stream cannot say where its holes are");
      if (!S_ISREG(status.st_mode)) {
        if (dry_run) return;
        open_stream(S_ISFIFO(status.st_mode), check_cancelled);
        return;
      }
      if (options.force == 0) fail(TANDEM_ERROR_IO, name_, " exists; use --force to replace it");
      check_no_shard(set, name_, status);
    }
    if (options.salvage != 0) check_partial(set, options.force != 0);
    Folders folders;
    add_folder(folders, folder_of(name_));
    if (dry_run) {
      if (faccessat(AT_FDCWD, folders[0]->path().c_str(), W_OK | X_OK, AT_EACCESS) != 0)
        fail_io("write to", folders[0]->path(), errno);
      return;
    }
    LockWait wait{.check_cancelled = check_cancelled};
    if (options.lock_wait_seconds != 0) wait.seconds = options.lock_wait_seconds;
    const FoldersLock lock(folders, wait);
    recover(folders, CleanUp::real);
    pending_.emplace(folders[0], new_temporary_name(), set.header.mode);
  }

  // The file that process 0 has made, of that path; "": nowhere.
  Sink(const tandem_files_decode_options &options, const std::string &path)
      : name_(options.output_path), leads_(false) {
    if (!path.empty()) pending_.emplace(std::make_shared<Folder>(folder_of(path)), name_of(path));
  }

  bool is_stream() const { return stream_ >= 0; }
  std::string pending_path() const { return pending_ ? pending_->path() : ""; }

  // Pieces of zeros stay holes: the file is new.
  void write_pieces(std::span<iovec> pieces, std::uint64_t offset) {
    if (!pending_) return;
    for (auto first = pieces.begin(); first != pieces.end();) {
      const bool is_hole = is_zeros(*first);
      const auto end = std::find_if(first + 1, pieces.end(), [&](auto &each) { return is_zeros(each) != is_hole; });
      std::uint64_t byte_count = 0;
      for (auto each = first; each != end; ++each) byte_count += each->iov_len;
      if (!is_hole && !write_pieces_at(pending_->descriptor(), std::span(first, end), offset))
        fail_io("write", name_, errno);
      offset += byte_count;
      first = end;
    }
  }

  void write_next(const iovec &piece, const std::atomic<bool> &stop) {
    if (write_stream(stream_, static_cast<const std::byte *>(piece.iov_base), piece.iov_len, stop)) return;
    if (errno == ECANCELED) fail(TANDEM_ERROR_CANCELLED, "cancelled");
    fail_io("write", name_, errno);
  }

  // content_bytes: the length of the output; its last bytes may be in a hole.
  void finish(const tandem_files_decode_options &options, std::uint64_t content_bytes) {
    if (!pending_) return;
    if (!set_length(pending_->descriptor(), content_bytes)) fail_io("extend", pending_->path(), errno);
    pending_->finish(options.no_sync != 0);
  }

  void give_name(const tandem_files_decode_options &options, bool has_holes) {
    if (!pending_ || !leads_) return;
    pending_->rename(name_of(has_holes ? partial_name() : name_), options.force != 0, options.no_sync != 0);
  }

 private:
  static bool is_zeros(const iovec &piece) {
    const auto *bytes = static_cast<const std::byte *>(piece.iov_base);
    return piece.iov_len == 0 || (bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, piece.iov_len - 1) == 0);
  }

  // Nor of another set: `force` is not for those.
  static void check_no_shard(const FoundSet &set, const std::string &name, const struct stat &status) {
    for (const ShardFile &file : set.files)
      if (file.identity == std::pair(status.st_dev, status.st_ino))
        fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is shard ", file.index,
             " of the set that is decoded; choose another output");
    if (is_shard_file(Folder(folder_of(name), FolderUse::enter), name_of(name)))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, name, " is a shard file; choose another output, or remove it first");
  }

  std::string partial_name() const { return name_ + ".partial"; }

  void check_partial(const FoundSet &set, bool force) const {
    const std::string name = partial_name();
    struct stat status;
    if (lstat(name.c_str(), &status) != 0) {
      if (errno != ENOENT) fail_io("find", name, errno);  // too long a name, say
      return;
    }
    if (!S_ISREG(status.st_mode))
      fail(TANDEM_ERROR_IO, name, " is no regular file; salvage may have to write a file of this name");
    if (!force) fail(TANDEM_ERROR_IO, name, " exists; use --force to replace it");
    check_no_shard(set, name, status);
  }

  void open_stream(bool is_pipe, const std::function<void()> &check_cancelled) {
    constexpr auto kNap = std::chrono::milliseconds(50);
    for (;;) {
      opened_ = Descriptor(open(name_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
      if (opened_) break;
      const int error = errno;
      const bool nobody_reads = is_pipe && error == ENXIO;
      if (!nobody_reads && error != EINTR) fail_io("open", name_, error);
      check_cancelled();
      if (nobody_reads) std::this_thread::sleep_for(kNap);
    }
    stream_ = opened_.get();
  }

  std::string name_;
  bool leads_ = true;
  Descriptor opened_;
  int stream_ = -1;
  std::optional<PendingFile> pending_;
};

class Decoder {
 public:
  Decoder(tandem_context *context, const Search &search, const FoundSet &set,
          const tandem_files_decode_options &options, const Team &team)
      : context_(context),
        team_(team),
        timeline_(base::timeline_of(context)),
        search_(search),
        set_(set),
        options_(options),
        header_(set.header),
        places_(options.salvage != 0 ? readable_stripes(set) : all_stripes(header_)),
        any_k_suffice_(any_k_suffice(header_)),
        codec_(make_codec_to_read(header_)),
        source_(context, codec_.get(), set),
        wanted_(header_.shard_count(), 0),
        rounds_(team, header_, places_.count()),
        digest_(team),
        meter_(options.progress, options.progress_user, progress_bytes()) {
    std::fill_n(wanted_.begin(), header_.k, std::uint8_t{1});
  }

  // Called by all processes of the team.
  tandem_files_result run() {
    const Clock::time_point started = Clock::now();
    team_.together([&] {
      if (known_shard_count(set_) < header_.k && !salvages()) {
        check_all_read(search_, set_);
        fail(TANDEM_ERROR_NOT_RECOVERABLE, set_.shard_count, " of ", header_.shard_count(), " shards found, ",
             header_.k, " are needed");
      }
      if (team_.leads()) sink_.emplace(options_, set_, team_, [this] { meter_.check(); });
    });
    if (!team_.is_alone()) {
      Words leading = team_.broadcast([&](Words &words) { words.put(sink_->pending_path()); });
      team_.together([&] {
        if (!team_.leads()) sink_.emplace(options_, leading.text());
      });
    }
    std::uint32_t thread_count = 0;
    for (std::uint64_t round = 0; round < rounds_.count(); ++round) {
      team_.together([&] { thread_count = std::max(thread_count, decode(rounds_.range(round))); });
      digest_.end_round();
    }
    if (salvages()) lose_stripes_before(header_.stripe_count());
    const Hash128 digest = digest_.value(header_.content_bytes);
    team_.together([&] {
      if (holes_.empty())
        check_digest(header_, digest);
      else
        check_holes();
      const bool syncs = options_.no_sync == 0 && options_.dry_run == 0 && !sink_->is_stream();
      const base::TimedStep step(syncs ? timeline_ : nullptr, "sync", 0, header_.content_bytes);
      sink_->finish(options_, header_.content_bytes);
    });
    team_.together([&] { sink_->give_name(options_, !holes_.empty()); });
    if (options_.hole != nullptr)
      for (const auto &[first, end] : holes_.ends()) options_.hole(options_.hole_user, first, end - first);

    auto result = description_of<tandem_files_result>(header_, any_k_suffice_);
    result.read_bytes = source_.reader().read_bytes();
    result.hole_bytes = holes_.count();
    result.written_bytes = options_.dry_run == 0 ? written_bytes() : 0;
    result.bad_block_count = source_.reader().bad_block_count();
    result.rebuilt_block_count = source_.computed_count();
    result.shards_read = source_.reader().shards_read();
    result.thread_count = thread_count;
    result.coding_seconds = source_.coding_seconds();
    result.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    return result;
  }

 private:
  using Stripe = StripeSource::Stripe;
  static constexpr std::size_t kMostHoles = std::size_t{1} << 20;  // 16 MiB

  static Ranges all_stripes(const SetHeader &header) {
    Ranges all;
    all.add(0, header.stripe_count());
    return all;
  }
  std::uint64_t written_bytes() const {
    return team_.is_alone() ? header_.content_bytes - holes_.count() : content_bytes_.load();
  }
  bool salvages() const { return options_.salvage != 0; }
  std::uint64_t progress_bytes() const {
    if (!team_.is_alone()) return std::min(rounds_.stripe_count() * header_.stripe_data_bytes(), header_.content_bytes);
    const std::uint64_t count = places_.count();
    if (count == 0) return 0;
    const std::uint64_t last = places_.at(count - 1);  // only this one may be shorter
    return (count - 1) * header_.stripe_data_bytes() + header_.content_bytes_of(last);
  }

  // Data blocks of a stripe that cannot be recovered become zeros.
  void make_holes(const Stripe &stripe) {
    const std::uint64_t payload = header_.payload_bytes_of(stripe.number);
    for (std::uint32_t i = 0; i < header_.k; ++i)
      if (stripe.present[i] == 0) std::fill_n(stripe.buffers->at(i), payload, std::byte{0});
  }
  // Called in the order of the stripes.
  void note(const Stripe &stripe) {
    if (salvages()) lose_stripes_before(stripe.number);
    next_stripe_ = stripe.number + 1;
    digest_.add(std::span(stripe.hashes).first(header_.k));
    if (stripe.complete) return;
    const std::uint64_t payload = header_.payload_bytes_of(stripe.number);
    const std::uint64_t begin = stripe.number * header_.stripe_data_bytes();
    const std::uint64_t content_bytes = header_.content_bytes_of(stripe.number);  // the rest is padding
    for (std::uint32_t i = 0; i < header_.k && i * payload < content_bytes; ++i)
      if (stripe.present[i] == 0) holes_.add(begin + i * payload, begin + std::min((i + 1) * payload, content_bytes));
  }
  // No file is long enough for the stripes since the last one that was noted.
  void lose_stripes_before(std::uint64_t stripe) {
    const std::uint64_t stripe_bytes = header_.stripe_data_bytes();
    if (next_stripe_ < stripe)
      holes_.add(next_stripe_ * stripe_bytes, std::min(stripe * stripe_bytes, header_.content_bytes));
  }

  // Where the files have been replaced since the search, another search may find everything.
  void check_holes() const {
    check_current(search_);
    if (holes_.count() != header_.content_bytes) return;
    check_all_read(search_, set_);
    fail(TANDEM_ERROR_NOT_RECOVERABLE, "nothing can be salvaged: ", set_.shard_count, " of ", header_.shard_count(),
         " shards found, ", header_.k, " are needed, and no data block is intact");
  }

  // Stripes at these places, by as many threads as it returns.
  std::uint32_t decode(const tandem_files_range &places) {
    const Division division = divide(context_, options_.thread_count, header_, places.count);
    source_.set_piece_bytes(division.piece_bytes);
    next_batch_ = 0;
    try {
      run_workers(context_, division.worker_count, meter_, &turns_,
                  [&](std::size_t) { work(places, division.batch_stripes); });
    } catch (const Error &error) {
      // The block may lie in a file that could not be looked at.
      if (error.status() == TANDEM_ERROR_NOT_RECOVERABLE) check_all_read(search_, set_);
      throw;
    }
    return division.worker_count;
  }

  void work(const tandem_files_range &places, std::uint64_t batch_stripes) {
    const BatchBuffers buffers = make_buffers(header_, batch_stripes);
    const std::uint64_t end = places.first + places.count;
    std::vector<Stripe> stripes;
    while (!meter_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t batch = next_batch_.fetch_add(1), first = places.first + batch * batch_stripes;
      if (first >= end) return;
      stripes.clear();
      for (std::uint64_t i = 0; i < std::min(batch_stripes, end - first); ++i)
        stripes.push_back({places_.at(first + i), wanted_, &buffers[i]});
      if (salvages())
        source_.bring(stripes);
      else
        source_.demand(stripes);
      for (Stripe &stripe : stripes) {
        if (!stripe.complete) make_holes(stripe);
        source_.hash_computed(stripe);  // a block of padding alone is zeros: no hole, and part of the digest
      }
      if (!turns_.enter(batch)) return;
      for (const Stripe &stripe : stripes) note(stripe);
      if (sink_->is_stream()) write(stripes);
      turns_.leave(batch);
      if (!sink_->is_stream()) write(stripes);
    }
  }

  void write(std::span<const Stripe> stripes) {
    for (const Stripe &stripe : stripes) {
      const std::uint64_t content_bytes = header_.content_bytes_of(stripe.number);
      std::vector<iovec> pieces = content_pieces(*stripe.buffers, header_, stripe.number);
      base::TimedStep step = step_of(options_.dry_run == 0 ? timeline_ : nullptr, "write", header_, stripe.number);
      step.add_bytes(content_bytes);
      if (sink_->is_stream()) {
        for (const iovec &piece : pieces) sink_->write_next(piece, meter_.stopped());
      } else {
        sink_->write_pieces(pieces, stripe.number * header_.stripe_data_bytes());
      }
      meter_.done(content_bytes);
      content_bytes_.fetch_add(content_bytes, std::memory_order_relaxed);
    }
  }

  // Throws DAMAGED unless the decoded content has the set's digest.
  static void check_digest(const SetHeader &header, const Hash128 &digest) {
    if (digest == header.digest) return;
    fail(TANDEM_ERROR_DAMAGED, "the digest of the ", header.content_bytes, " decoded bytes is ",
         hexadecimal(printed_order(digest)), ", the set's is ", hexadecimal(printed_order(header.digest)));
  }

  tandem_context *context_;
  const Team &team_;
  base::Timeline *const timeline_;  // null: none is asked for
  const Search &search_;
  const FoundSet &set_;
  const tandem_files_decode_options &options_;
  const SetHeader header_;
  const RangeList places_;  // of the stripes that are looked at
  const bool any_k_suffice_;
  OwnedCodec codec_;
  StripeSource source_;
  std::vector<std::uint8_t> wanted_;  // the data shards
  const Rounds rounds_;
  // Used by one worker at a time, in the order of stripes:
  SharedDigest digest_;
  Ranges holes_{kMostHoles};       // bytes
  std::uint64_t next_stripe_ = 0;  // after the last one that was noted
  base::Meter meter_;
  Turns turns_{meter_};
  std::optional<Sink> sink_;
  std::atomic<std::uint64_t> next_batch_{0}, content_bytes_{0};
};

}  // namespace

tandem_files_result decode(tandem_context *context, const Search &search, const tandem_files_decode_options &options) {
  const Team team(options.team);
  team.together([&] {
    if (!team.is_alone() && (options.output_path == nullptr || options.salvage != 0))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "several processes write a whole file: no stream, and no salvage");
  });
  const FoundSet &set = choose_set(search, options.set_id_prefix, team);
  std::optional<Decoder> decoder;
  team.together([&] { decoder.emplace(context, search, set, options, team); });
  return decoder->run();
}

}  // namespace tandem::files
