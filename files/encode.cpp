#include "files/encode.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "files/commit.hpp"
#include "files/crew.hpp"
#include "files/error.hpp"
#include "files/format.hpp"
#include "files/handles.hpp"
#include "files/io.hpp"
#include "files/recovery.hpp"

namespace tandem::files {
namespace {

using Clock = std::chrono::steady_clock;

// What is encoded: a regular file, read at offsets by several threads, or a stream, read in order.
class Source {
 public:
  explicit Source(const tandem_files_encode_options &options) {
    if (options.source_path == nullptr) {
      name_ = "the input stream";
      descriptor_ = options.source_descriptor;
      // A regular file has a length and a time, also when somebody else has opened it.
      is_file_ = fstat(descriptor_, &at_first_) == 0 && S_ISREG(at_first_.st_mode);
      return;
    }
    name_ = options.source_path;
    opened_ = open_to_read(name_);
    if (!opened_) fail_io("open", name_, errno);
    descriptor_ = opened_.get();
    is_file_ = true;
    if (fstat(descriptor_, &at_first_) != 0) fail_io("stat", name_, errno);
    if (S_ISDIR(at_first_.st_mode)) fail_io("read", name_, EISDIR);
    if (!S_ISREG(at_first_.st_mode))
      fail(TANDEM_ERROR_INVALID_ARGUMENT,
           fmt::format("{} is no regular file; give its descriptor to read a stream", name_));
    mode_ = at_first_.st_mode & 0777;
    // Files of /proc say that they are empty and are not: length 0 is read as a stream.
    if (at_first_.st_size > 0) content_bytes_ = static_cast<std::uint64_t>(at_first_.st_size);
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  bool is_stream() const { return content_bytes_ == TANDEM_FILES_UNKNOWN_BYTES; }
  std::uint64_t content_bytes() const { return content_bytes_; }
  std::uint32_t mode() const { return mode_; }

  void read(std::span<iovec> pieces, std::uint64_t offset, std::uint64_t wanted_bytes) const {
    const std::int64_t got = read_pieces_at(descriptor_, pieces, offset);
    if (got < 0) fail_io("read", name_, errno);
    if (static_cast<std::uint64_t>(got) != wanted_bytes) fail_changed();
  }

  std::uint64_t read_next(std::byte *bytes_out, std::uint64_t byte_count, const std::atomic<bool> &stop) const {
    const std::int64_t got = read_stream(descriptor_, bytes_out, byte_count, stop);
    if (got >= 0) return static_cast<std::uint64_t>(got);
    if (errno == ECANCELED) fail(TANDEM_ERROR_CANCELLED, "cancelled");
    fail_io("read", name_, errno);
  }

  void check_unchanged() const {
    if (!is_file_) return;
    struct stat now;
    if (fstat(descriptor_, &now) != 0) fail_io("stat", name_, errno);
    if (!unchanged(at_first_, now)) fail_changed();
  }

 private:
  [[noreturn]] void fail_changed() const {
    struct stat now = at_first_;
    fstat(descriptor_, &now);
    fail(TANDEM_ERROR_IO, fmt::format("{} changed while it was read ({} bytes at first, {} now); nothing was written",
                                      name_, at_first_.st_size, now.st_size));
  }

  std::string name_;
  Descriptor opened_;
  int descriptor_ = -1;
  bool is_file_ = false;
  struct stat at_first_ = {};
  std::uint64_t content_bytes_ = TANDEM_FILES_UNKNOWN_BYTES;
  std::uint32_t mode_ = kModeUnknown;
};

std::string set_name(const tandem_files_encode_options &options) {
  std::string name = options.name != nullptr          ? options.name
                     : options.source_path != nullptr ? name_of(options.source_path)
                                                      : "stdin";
  if (!is_set_name(name))
    fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("\"{}\" cannot be the name of shard files: it is empty, has a / or "
                                                    "more than {} bytes",
                                                    name, kMaxSetNameBytes));
  return name;
}

std::vector<std::string> folders_of_shards(const tandem_files_encode_options &options, std::uint32_t shard_count) {
  std::vector<std::string> folders;
  for (std::uint32_t i = 0; i < shard_count; ++i)
    folders.push_back(without_trailing_slashes(options.folders[i % options.folder_count]));
  return folders;
}

class Encoder {
 public:
  Encoder(tandem_context *context, const tandem_files_encode_options &options)
      : context_(context),
        options_(options),
        source_(options),
        crew_(options.progress, options.progress_user, source_.content_bytes()) {
    header_.k = options.k;
    header_.m = options.m;
    header_.matrix = options.matrix;
    header_.field = TANDEM_FIELD_GF8;
    header_.mode = source_.mode();
    if (!source_.is_stream()) header_.content_bytes = source_.content_bytes();
    if (options.k >= 1 && options.k <= kMaxShardCount && options.m <= kMaxShardCount - options.k)
      header_.block_bytes = options.block_bytes != 0 ? options.block_bytes : default_block_bytes(options.k + options.m);
    if (const auto why = out_of_limits(header_)) fail(TANDEM_ERROR_INVALID_ARGUMENT, *why);
    if (options.matrix == TANDEM_MATRIX_CUSTOM)
      fail(TANDEM_ERROR_UNSUPPORTED, "a shard set cannot hold a custom matrix; choose a preset");
    codec_ = make_codec(header_, options.allow_non_mds != 0);
    random_bytes(header_.set_id);
  }

  Outcome run() {
    const Clock::time_point started = Clock::now();
    if (options_.dry_run != 0) {
      check_folders();
      Outcome outcome;
      outcome.set = header_;
      outcome.set.set_id = {};  // nobody will see that set
      return outcome;
    }
    open_files();
    const std::uint64_t stripe_bytes = std::uint64_t{header_.shard_count()} * header_.block_bytes;
    const std::uint64_t stripe_count = source_.is_stream() ? UINT64_MAX : header_.stripe_count();
    const unsigned thread_count = crew_size(context_, options_.thread_count, stripe_bytes, stripe_count);
    piece_bytes_ = piece_bytes(context_, thread_count, header_.shard_count());
    crew_.run(thread_count, [this](unsigned) { work(); });
    if (source_.is_stream()) header_.content_bytes = stream_bytes_;
    header_.digest = digest_.value();
    complete();

    Outcome outcome;
    outcome.set = header_;
    outcome.read_bytes = header_.content_bytes;
    outcome.written_bytes = header_.shard_file_bytes() * header_.shard_count();
    outcome.thread_count = thread_count;
    outcome.coding_seconds = coding_nanoseconds_.load() * 1e-9;
    outcome.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    return outcome;
  }

 private:
  // What can be known of the folders without writing to them.
  void check_folders() {
    const std::vector<std::string> folders = folders_of_shards(options_, header_.shard_count());
    std::map<dev_t, std::uint64_t> needed_bytes;
    Folders there;
    for (std::uint32_t i = 0; i < header_.shard_count(); ++i) {
      struct stat status;
      const bool exists = stat(folders[i].c_str(), &status) == 0;
      const std::string writable = exists ? folders[i] : folder_of(folders[i]);
      if (!exists && (errno != ENOENT || stat(writable.c_str(), &status) != 0))
        fail_io("make the folder", folders[i], errno);
      if (!S_ISDIR(status.st_mode)) fail_io("write to", writable, ENOTDIR);
      if (faccessat(AT_FDCWD, writable.c_str(), W_OK | X_OK, AT_EACCESS) != 0) fail_io("write to", writable, errno);
      if (exists) add_folder(there, folders[i]);
      struct statvfs space;
      std::uint64_t &needed = needed_bytes[status.st_dev];
      needed += source_.is_stream() ? 0 : header_.shard_file_bytes();
      if (statvfs(writable.c_str(), &space) == 0 && needed > std::uint64_t{space.f_bavail} * space.f_frsize)
        fail(TANDEM_ERROR_IO, fmt::format("{} has {} bytes free, and at least {} are needed", writable,
                                          std::uint64_t{space.f_bavail} * space.f_frsize, needed));
    }
    check_unfinished(there);
    for (std::uint32_t i = 0; i < header_.shard_count(); ++i)
      check_names_free(folders[i], set_name(options_), i, options_.force != 0);
  }

  // As a run would find the folders when it had cleaned up.
  void check_unfinished(const Folders &folders) {
    const FoldersLock lock(folders, lock_wait());
    const Recovered recovered = recover(folders, true);
    for (const std::string &text : recovered.notes) note(text);
    const std::vector<std::vector<SetId>> given_up =
        refuse_unfinished(folders, set_name(options_), recovered.would_finish, options_.force != 0);
    for (std::size_t folder = 0; folder < given_up.size(); ++folder)
      for (const SetId &id : given_up[folder])
        note(fmt::format("would give up what {} holds of the unfinished set {}", folders[folder]->path(),
                         hexadecimal(id)));
  }

  void note(const std::string &text) const {
    if (options_.note != nullptr) options_.note(options_.note_user, text.c_str());
  }

  LockWait lock_wait() {
    LockWait wait;
    if (options_.lock_wait_seconds != 0) wait.seconds = options_.lock_wait_seconds;
    wait.check_cancelled = [this] { crew_.check_cancelled(); };
    return wait;
  }

  void open_files() {
    NewSet::Options options;
    options.set_id = header_.set_id;
    options.name = set_name(options_);
    options.mode = header_.mode;
    options.force = options_.force != 0;
    options.no_sync = options_.no_sync != 0;
    options.wait = lock_wait();
    options.note = [this](const std::string &text) { note(text); };
    files_.emplace(std::move(options), folders_of_shards(options_, header_.shard_count()));
  }

  void work() {
    const std::uint32_t k = header_.k, n = header_.shard_count();
    ShardBuffers buffers(n, header_.block_bytes);
    std::vector<iovec> pieces;
    while (!crew_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t stripe = next_stripe_.fetch_add(1);
      std::uint64_t content_bytes = 0, payload_bytes = 0;
      if (source_.is_stream()) {
        if (!crew_.enter(stripe)) return;
        content_bytes = read_stripe_of_stream(buffers);
        crew_.leave(stripe);
        if (content_bytes == 0) return;
        payload_bytes = (content_bytes + k - 1) / k;
      } else {
        if (stripe >= header_.stripe_count()) return;
        content_bytes = header_.content_bytes_of(stripe);
        payload_bytes = header_.payload_bytes_of(stripe);
        pieces = content_pieces(buffers, header_, stripe);
        source_.read(pieces, stripe * header_.stripe_data_bytes(), content_bytes);
        pieces = content_pieces(buffers, header_, stripe);
        if (!crew_.enter(stripe)) return;
        for (const iovec &piece : pieces) digest_.update(piece.iov_base, piece.iov_len);
        crew_.leave(stripe);
      }
      // Padding of the last stripe.
      for (std::uint32_t i = 0; i < k; ++i) {
        const std::uint64_t length =
            std::min(payload_bytes, content_bytes - std::min(i * payload_bytes, content_bytes));
        if (length < payload_bytes) std::memset(buffers.at(i) + length, 0, payload_bytes - length);
      }

      const Clock::time_point coding = Clock::now();
      if (header_.m != 0) code(buffers, payload_bytes);
      coding_nanoseconds_.fetch_add(static_cast<std::uint64_t>((Clock::now() - coding).count()),
                                    std::memory_order_relaxed);

      // Each worker starts at another file: two writers to one file wait for each other in the kernel.
      const std::uint32_t first = static_cast<std::uint32_t>(stripe * 7 % n);
      for (std::uint32_t step = 0; step < n; ++step) {
        const std::uint32_t i = (first + step) % n;
        std::byte *block = buffers.at(i);
        write_check(block_check(header_.set_id, i, stripe, block, payload_bytes), block + payload_bytes);
        if (!write_at(files_->descriptor(i), block, payload_bytes + kCheckBytes, header_.block_offset(stripe)))
          fail_io("write", files_->path(i), errno);
      }
      crew_.add_done(content_bytes);
    }
  }

  void code(const ShardBuffers &buffers, std::uint64_t payload_bytes) const {
    const std::uint32_t k = header_.k, n = header_.shard_count();
    void *shards[kMaxShardCount];
    check(code_in_pieces(piece_bytes_, payload_bytes, [&](std::uint64_t offset, std::uint64_t bytes) {
      for (std::uint32_t i = 0; i < n; ++i) shards[i] = buffers.at(i) + offset;
      return tandem_encode(context_, codec_.get(), shards, shards + k, bytes);
    }));
  }

  // Fills the data blocks with the next bytes of the stream and returns how many there were. How a stripe is cut into
  // blocks is known when its length is: the last one is cut anew.
  std::uint64_t read_stripe_of_stream(const ShardBuffers &buffers) {
    std::uint64_t content_bytes = 0;
    for (std::uint32_t i = 0; i < header_.k && !stream_ended_; ++i) {
      const std::uint64_t got = source_.read_next(buffers.at(i), header_.payload_bytes(), crew_.stopped());
      digest_.update(buffers.at(i), got);
      content_bytes += got;
      stream_ended_ = got < header_.payload_bytes();
    }
    stream_bytes_ += content_bytes;
    if (stream_bytes_ > kMaxContentBytes)
      fail(TANDEM_ERROR_TOO_LARGE, fmt::format("the input has more than {} bytes", kMaxContentBytes));
    if (content_bytes < header_.stripe_data_bytes()) cut_anew(buffers, content_bytes);
    return content_bytes;
  }

  // From payloads of full length to equal ones. In place, as a second stripe would not be within the memory bound:
  // every byte moves to the same block or a later one, so the last goes first.
  void cut_anew(const ShardBuffers &buffers, std::uint64_t content_bytes) const {
    const std::uint64_t from = header_.payload_bytes(), to = (content_bytes + header_.k - 1) / header_.k;
    for (std::uint64_t end = content_bytes; end != 0;) {
      const std::uint64_t from_block = (end - 1) / from, to_block = (end - 1) / to;
      const std::uint64_t first = std::max(from_block * from, to_block * to);
      std::memmove(buffers.at(static_cast<std::uint32_t>(to_block)) + (first - to_block * to),
                   buffers.at(static_cast<std::uint32_t>(from_block)) + (first - from_block * from), end - first);
      end = first;
    }
  }

  // Both records of each file, then everything on disk, then the names.
  void complete() {
    header_.folder_count = files_->folders_in_turn();
    std::array<std::byte, kRecordBytes> bytes;
    for (std::uint32_t i = 0; i < header_.shard_count(); ++i) {
      for (const RecordEnd end : {RecordEnd::end, RecordEnd::start}) {
        write_record({header_, i, end}, bytes);
        const std::uint64_t at = end == RecordEnd::start ? 0 : header_.shard_file_bytes() - kRecordBytes;
        if (!write_at(files_->descriptor(i), bytes.data(), bytes.size(), at)) fail_io("write", files_->path(i), errno);
      }
    }
    for (std::uint32_t i = 0; i < header_.shard_count(); ++i) {
      files_->finish(i);
      crew_.check_cancelled();  // a sync can take long
    }
    source_.check_unchanged();
    let_go(files_->commit());
  }

  // The last descriptor of a file that has no name any more: the kernel gives back what it took. For the pages of a
  // memory-backed file that is a third of what writing them costs.
  void let_go(std::vector<Descriptor> replaced) const {
    if (replaced.empty()) return;
    std::atomic<std::size_t> next{0};
    try {
      Crew crew(nullptr, nullptr, 0);
      crew.run(crew_size(context_, options_.thread_count, 0, replaced.size()), [&](unsigned) {
        for (std::size_t i; (i = next.fetch_add(1)) < replaced.size();) replaced[i].reset();
      });
    } catch (const std::exception &) {
      // No thread to be had; the set is complete, and they are closed here.
    }
  }

  tandem_context *context_;
  const tandem_files_encode_options &options_;
  Source source_;
  Crew crew_;
  SetHeader header_;
  Codec codec_;
  std::optional<NewSet> files_;
  std::atomic<std::uint64_t> next_stripe_{0}, coding_nanoseconds_{0};
  std::uint64_t piece_bytes_ = UINT64_MAX;
  StreamHash digest_;  // this and what follows: by the worker whose turn it is
  bool stream_ended_ = false;
  std::uint64_t stream_bytes_ = 0;
};

}  // namespace

Outcome encode(tandem_context *context, const tandem_files_encode_options &options) {
  if (options.folders == nullptr || options.folder_count == 0 || options.folder_count > kMaxShardCount)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} folders given; 1 to k + m are possible", options.folder_count));
  return Encoder(context, options).run();
}

}  // namespace tandem::files
