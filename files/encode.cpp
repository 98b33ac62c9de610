// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "base/io_error.hpp"
#include "files/calls.hpp"
#include "files/format.hpp"
#include "files/handles.hpp"
#include "files/io.hpp"
#include "files/set_writer.hpp"
#include "files/workers.hpp"

namespace tandem::files {
namespace {

// The input: a regular file, read at offsets by several threads, or a stream, read in order.
class Source {
 public:
  Source(const tandem_files_encode_options &options, bool is_shared) {
    if (is_shared && options.source_path == nullptr)
      fail(TANDEM_ERROR_INVALID_ARGUMENT,
           "source_path is NULL: several processes encode a regular file, and no stream");
    if (options.source_path == nullptr) {
      name_ = "the input stream";
      descriptor_ = options.source_descriptor;
      // A regular file has a length and a time, also if another program has opened it.
      is_file_ = fstat(descriptor_, &at_first_) == 0 && S_ISREG(at_first_.st_mode);
      return;
    }
    name_ = options.source_path;
    opened_ = open_to_read(name_);
    if (!opened_) fail_io("open", name_, errno);
    descriptor_ = opened_.get();
    is_file_ = true;
    if (fstat(descriptor_, &at_first_) != 0) fail_io("stat", name_, errno);
    if (S_ISDIR(at_first_.st_mode))
      fail(TANDEM_ERROR_IO, name_,
           " is a folder, and a set holds one file: name a file in it, or make a file of "
           "it first (tar -cf FILE.tar ",
           name_, ")");
    if (!S_ISREG(at_first_.st_mode))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, name_,
           " is no regular file; give its descriptor to read a stream (on the command line: - for standard input)");
    mode_ = at_first_.st_mode & 0777;
    // Files of /proc say that they are empty and are not: length 0 is read as a stream, but not by several processes.
    char byte;
    if (is_shared && at_first_.st_size == 0 && pread(descriptor_, &byte, 1, 0) > 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, name_, " has bytes, though its length is 0: one process can encode it");
    if (at_first_.st_size > 0 || is_shared) content_bytes_ = static_cast<std::uint64_t>(at_first_.st_size);
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
    fail(TANDEM_ERROR_IO, name_, " changed while it was read (", at_first_.st_size, " bytes at first, ", now.st_size,
         " now); nothing was written");
  }

  std::string name_;
  Descriptor opened_;
  int descriptor_ = -1;
  bool is_file_ = false;
  struct stat at_first_ = {};
  std::uint64_t content_bytes_ = TANDEM_FILES_UNKNOWN_BYTES;
  std::uint32_t mode_ = kModeUnknown;
};

class Encoder {
 public:
  Encoder(tandem_context *context, const tandem_files_encode_options &options)
      : context_(context),
        options_(options),
        source_(options, !Team(options.team).is_alone()),
        writer_(context, options, source_.content_bytes(), source_.mode(), [this] { meter_.check(); }),
        header_(writer_.header()),
        rounds_(writer_.team(), header_, source_.is_stream() ? UINT64_MAX : header_.stripe_count()),
        meter_(options.progress, options.progress_user, progress_bytes()) {}

  // Called by all processes of the team.
  tandem_files_result run() {
    const Team &team = writer_.team();
    if (options_.dry_run != 0) {
      team.together([&] {
        if (team.leads()) writer_.check_folders();
      });
      tandem_files_result result = writer_.result();
      std::memset(result.set_id, 0, sizeof result.set_id);  // no user will see that set
      return result;
    }
    writer_.begin();
    std::uint32_t thread_count = 0;
    for (std::uint64_t round = 0; round < rounds_.count(); ++round) {
      const tandem_files_range stripes = rounds_.range(round);
      team.together([&] {
        const Division division = divide(context_, options_.thread_count, header_, stripes.count);
        next_batch_ = 0;
        run_workers(context_, division.worker_count, meter_, &turns_, [&](std::size_t) { work(stripes, division); });
        thread_count = std::max(thread_count, division.worker_count);
      });
      writer_.written().hand_over(team, header_.stripe_count());
    }
    if (source_.is_stream()) meter_.finish();
    writer_.commit(source_.is_stream() ? stream_bytes_ : header_.content_bytes, [this] { source_.check_unchanged(); });
    tandem_files_result result = writer_.result();
    result.thread_count = thread_count;
    return result;
  }

 private:
  // If there are several processes, a last stripe counts as a full one.
  std::uint64_t progress_bytes() const {
    if (source_.is_stream()) return TANDEM_FILES_UNKNOWN_BYTES;
    return std::min(rounds_.stripe_count() * header_.stripe_data_bytes(), header_.content_bytes);
  }

  void work(const tandem_files_range &stripes, const Division &division) {
    const BatchBuffers buffers = make_buffers(header_, division.batch_stripes);
    const std::uint64_t end = stripes.first + stripes.count;
    while (!meter_.stopped().load(std::memory_order_relaxed)) {
      const std::uint64_t batch = next_batch_.fetch_add(1), first = stripes.first + batch * division.batch_stripes;
      std::uint64_t content_bytes = 0;
      if (source_.is_stream()) {
        if (!turns_.enter(batch)) return;
        content_bytes = read_batch_of_stream(first, buffers);
        turns_.leave(batch);
        if (content_bytes == 0) return;
      } else {
        if (first >= end) return;
        content_bytes = read_batch_of_file(first, end, buffers);
      }
      std::vector<Hash128> hashes = writer_.hash_data(first, content_bytes, buffers);
      // In order, so that a worker that reads slowly lets no hashes pile up.
      if (!source_.is_stream() && !turns_.enter(batch)) return;
      writer_.written().take(first, hashes.size() / header_.k, UINT64_MAX);
      writer_.written().add(first, hashes);
      if (!source_.is_stream()) turns_.leave(batch);
      writer_.write_stripes(first, content_bytes, hashes, buffers, division.piece_bytes);
      meter_.done(content_bytes);
    }
  }

  // Both return how many bytes there were.
  std::uint64_t read_batch_of_file(std::uint64_t first, std::uint64_t end, const BatchBuffers &buffers) const {
    std::uint64_t batch_bytes = 0;
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(buffers.size(), end - first); ++i) {
      const std::uint64_t stripe = first + i, content_bytes = header_.content_bytes_of(stripe);
      std::vector<iovec> pieces = content_pieces(buffers[i], header_, stripe);
      base::TimedStep read = step_of(base::timeline_of(context_), "read", header_, stripe);
      read.add_bytes(content_bytes);
      source_.read(pieces, stripe * header_.stripe_data_bytes(), content_bytes);
      batch_bytes += content_bytes;
    }
    return batch_bytes;
  }

  std::uint64_t read_batch_of_stream(std::uint64_t first, const BatchBuffers &buffers) {
    std::uint64_t batch_bytes = 0;
    for (std::uint64_t i = 0; i < buffers.size() && !stream_ended_; ++i)
      batch_bytes += read_stripe_of_stream(first + i, buffers[i]);
    return batch_bytes;
  }

  // Fills the data blocks with the next bytes of the stream and returns how many there were. How a stripe is cut into
  // blocks is known when its length is: the last one is cut anew.
  std::uint64_t read_stripe_of_stream(std::uint64_t stripe, const ShardBuffers &buffers) {
    base::TimedStep read = step_of(base::timeline_of(context_), "read", header_, stripe);
    std::uint64_t content_bytes = 0;
    for (std::uint32_t i = 0; i < header_.k && !stream_ended_; ++i) {
      const std::uint64_t got = source_.read_next(buffers.at(i), header_.payload_bytes(), meter_.stopped());
      content_bytes += got;
      stream_ended_ = got < header_.payload_bytes();
    }
    read.add_bytes(content_bytes);
    stream_bytes_ += content_bytes;
    if (stream_bytes_ > kMaxContentBytes)
      fail(TANDEM_ERROR_TOO_LARGE, "the input has more than ", kMaxContentBytes, " bytes");
    if (content_bytes < header_.stripe_data_bytes()) cut_anew(buffers, content_bytes);
    return content_bytes;
  }

  // From payloads of full length to equal ones. In place, as a second stripe would not be within the memory bound:
  // every byte moves to the same block or a later one, so the last goes first.
  void cut_anew(const ShardBuffers &buffers, std::uint64_t content_bytes) const {
    const std::uint64_t from = header_.payload_bytes(), to = header_.payload_bytes_for(content_bytes);
    for (std::uint64_t end = content_bytes; end != 0;) {
      const std::uint64_t from_block = (end - 1) / from, to_block = (end - 1) / to;
      const std::uint64_t first = std::max(from_block * from, to_block * to);
      std::memmove(buffers.at(static_cast<std::uint32_t>(to_block)) + (first - to_block * to),
                   buffers.at(static_cast<std::uint32_t>(from_block)) + (first - from_block * from), end - first);
      end = first;
    }
  }

  tandem_context *context_;
  const tandem_files_encode_options &options_;
  Source source_;
  SetWriter writer_;
  const SetHeader header_;
  const Rounds rounds_;
  base::Meter meter_;
  Turns turns_{meter_};
  std::atomic<std::uint64_t> next_batch_{0};
  bool stream_ended_ = false;  // this and the next members: used by one worker at a time, in turn
  std::uint64_t stream_bytes_ = 0;
};

}  // namespace

tandem_files_result encode(tandem_context *context, const tandem_files_encode_options &options) {
  const Team team(options.team);
  std::optional<Encoder> encoder;
  team.together([&] { encoder.emplace(context, options); });
  return encoder->run();
}

}  // namespace tandem::files
