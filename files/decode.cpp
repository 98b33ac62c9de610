#include "files/decode.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "files/commit.hpp"
#include "files/error.hpp"
#include "files/folder.hpp"
#include "files/handles.hpp"
#include "files/recovery.hpp"
#include "files/stripe_source.hpp"
#include "files/workers.hpp"
#include "files/written_stripes.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

// Where the content goes: a pending regular file, written at offsets, or a stream, written in order, or nowhere.
class Sink {
 public:
  // Throws what check_cancelled throws, while it waits for the reader of a named pipe or a locked folder.
  Sink(const tandem_files_decode_options &options, std::uint32_t mode, const std::function<void()> &check_cancelled) {
    const bool dry_run = options.dry_run != 0;
    if (options.output_path == nullptr) {
      name_ = "the output stream";
      if (!dry_run) stream_ = options.output_descriptor;
      return;
    }
    name_ = options.output_path;
    struct stat status;
    if (stat(name_.c_str(), &status) == 0) {
      if (S_ISDIR(status.st_mode)) fail_io("write", name_, EISDIR);
      if (!S_ISREG(status.st_mode)) {
        if (dry_run) return;
        open_stream(S_ISFIFO(status.st_mode), check_cancelled);
        return;
      }
      if (options.force == 0) fail(TANDEM_ERROR_IO, fmt::format("{} exists; replacing it needs force", name_));
    }
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
    recover(folders, false);
    OwnName temporary{OwnKind::lone_temporary};
    random_bytes(temporary.set_id);
    pending_.emplace(folders[0], own_name(temporary), mode);
  }

  bool is_stream() const { return stream_ >= 0; }

  void write_pieces(std::span<iovec> pieces, std::uint64_t offset) {
    if (pending_ && !write_pieces_at(pending_->descriptor(), pieces, offset)) fail_io("write", name_, errno);
  }

  void write_next(const iovec &piece, const std::atomic<bool> &stop) {
    if (write_stream(stream_, static_cast<const std::byte *>(piece.iov_base), piece.iov_len, stop)) return;
    if (errno == ECANCELED) fail(TANDEM_ERROR_CANCELLED, "cancelled");
    fail_io("write", name_, errno);
  }

  void complete(const tandem_files_decode_options &options) {
    if (!pending_) return;
    pending_->finish(options.no_sync != 0);
    pending_->rename(name_of(name_), options.force != 0, options.no_sync != 0);
  }

 private:
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
  Descriptor opened_;
  int stream_ = -1;
  std::optional<PendingFile> pending_;
};

class Decoder {
 public:
  Decoder(tandem_context *context, const FoundSet &set, std::string unread, const tandem_files_decode_options &options)
      : context_(context),
        timeline_(base::timeline_of(context)),
        unread_(std::move(unread)),
        options_(options),
        header_(set.header),
        shard_count_(set.shard_count),
        codec_(make_codec(header_, true)),  // an existing set may be read with every matrix
        source_(context, codec_.get(), set),
        wanted_(header_.shard_count(), 0),
        workers_(context, options.progress, options.progress_user, header_.content_bytes) {
    std::fill_n(wanted_.begin(), header_.k, std::uint8_t{1});
  }

  Outcome run() {
    const Clock::time_point started = Clock::now();
    if (shard_count_ < header_.k) {
      if (!unread_.empty()) fail(TANDEM_ERROR_IO, unread_);
      fail(TANDEM_ERROR_NOT_RECOVERABLE,
           fmt::format("{} of {} shards found, {} are needed", shard_count_, header_.shard_count(), header_.k));
    }
    sink_.emplace(options_, header_.mode, [this] { workers_.check_cancelled(); });
    const Division division = divide(context_, options_.thread_count, header_, header_.stripe_count());
    source_.set_piece_bytes(division.piece_bytes);
    try {
      workers_.run(division.worker_count, [&](unsigned) { work(division.batch_stripes); });
    } catch (const Error &error) {
      // The block may lie in a file that could not be looked at.
      if (error.status() == TANDEM_ERROR_NOT_RECOVERABLE && !unread_.empty()) fail(TANDEM_ERROR_IO, unread_);
      throw;
    }
    check_digest(header_, digest_.value(header_.content_bytes));
    {
      const bool syncs = options_.no_sync == 0 && options_.dry_run == 0 && !sink_->is_stream();
      const base::TimedStep step(syncs ? timeline_ : nullptr, "sync", 0, header_.content_bytes);
      sink_->complete(options_);
    }

    Outcome outcome;
    outcome.set = header_;
    outcome.read_bytes = source_.reader().read_bytes();
    outcome.written_bytes = options_.dry_run == 0 ? header_.content_bytes : 0;
    outcome.bad_block_count = source_.reader().bad_block_count();
    outcome.rebuilt_block_count = source_.computed_count();
    outcome.shards_read = source_.reader().shards_read();
    outcome.thread_count = division.worker_count;
    outcome.coding_seconds = source_.coding_seconds();
    outcome.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    return outcome;
  }

 private:
  using Stripe = StripeSource::Stripe;

  void work(std::uint64_t batch_stripes) {
    const BatchBuffers buffers = make_buffers(header_, batch_stripes);
    std::vector<Stripe> stripes;
    while (!workers_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t batch = next_batch_.fetch_add(1), first = batch * batch_stripes;
      if (first >= header_.stripe_count()) return;
      stripes.clear();
      for (std::uint64_t i = 0; i < std::min(batch_stripes, header_.stripe_count() - first); ++i)
        stripes.push_back({first + i, wanted_, &buffers[i]});
      source_.demand(stripes);
      for (Stripe &stripe : stripes) source_.hash_computed(stripe);
      if (!workers_.enter(batch)) return;
      for (const Stripe &stripe : stripes) digest_.add(std::span(stripe.hashes).first(header_.k));
      if (sink_->is_stream()) write(stripes);
      workers_.leave(batch);
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
        for (const iovec &piece : pieces) sink_->write_next(piece, workers_.stopped());
      } else {
        sink_->write_pieces(pieces, stripe.number * header_.stripe_data_bytes());
      }
      workers_.add_done(content_bytes);
    }
  }

  tandem_context *context_;
  base::Timeline *const timeline_;  // null: none is asked for
  std::string unread_;              // Search::unread
  const tandem_files_decode_options &options_;
  const SetHeader header_;
  std::uint32_t shard_count_;  // that there are
  OwnedCodec codec_;
  StripeSource source_;
  std::vector<std::uint8_t> wanted_;  // the data shards
  Workers workers_;
  std::optional<Sink> sink_;
  std::atomic<std::uint64_t> next_batch_{0};
  ContentDigest digest_;  // by the worker whose turn it is
};

}  // namespace

Outcome decode(tandem_context *context, const Search &search, const tandem_files_decode_options &options) {
  const std::size_t set = search.choose_to_code(options.set_id_prefix != nullptr ? options.set_id_prefix : "");
  return Decoder(context, search.sets[set], search.unread, options).run();
}

}  // namespace tandem::files
