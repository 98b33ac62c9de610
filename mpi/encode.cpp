// SPDX-License-Identifier: Apache-2.0
#include "mpi/encode.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "mpi/error.hpp"
#include "mpi/rounds.hpp"
#include "mpi/structs.hpp"

namespace tandem::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// The source file, which all ranks read at once.
class Source {
 public:
  // Throws on this rank alone.
  explicit Source(const char *path) : path_(path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) fail_io("open", path_, errno);
    const int failed = fstat(descriptor, &before_) != 0 ? errno : 0;
    close(descriptor);
    if (failed != 0) fail_io("look at", path_, failed);
    if (!S_ISREG(before_.st_mode))
      fail(TANDEM_ERROR_INVALID_ARGUMENT, fmt::format("{} is no regular file: ranks share no stream", path_));
  }
  // Collective if open_shared() was called.
  ~Source() {
    if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
  }
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;

  std::uint64_t byte_count() const { return static_cast<std::uint64_t>(before_.st_size); }
  std::uint32_t mode() const { return before_.st_mode & 0777; }

  // Collective, and so is read(). Each throws only on this rank.
  void open_shared(const World &world) {
    // Makes every rank read, instead of one for all: Open MPI would choose a single one for small parts. ROMIO has the
    // second hint.
    MPI_Info hints = MPI_INFO_NULL;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "cb_nodes", std::to_string(world.size()).c_str());
    MPI_Info_set(hints, "romio_cb_read", "disable");
    const int code = MPI_File_open(MPI_Comm_f2c(world.handle()), path_.c_str(), MPI_MODE_RDONLY, hints, &file_);
    MPI_Info_free(&hints);
    check_file(code, "open");
  }
  // Closing is collective, so it is skipped if a rank could not open the file.
  void abandon() { file_ = MPI_FILE_NULL; }
  void read(std::uint64_t offset, std::span<std::byte> bytes) {
    MPI_Status status;
    int got = 0;
    const int code = MPI_File_read_at_all(file_, static_cast<MPI_Offset>(offset), bytes.data(),
                                          static_cast<int>(bytes.size()), MPI_BYTE, &status);
    check_file(code, "read");
    MPI_Get_count(&status, MPI_BYTE, &got);  // at the end of the file Open MPI counts too many: see check_same()
    if (got != static_cast<int>(bytes.size()))
      fail(TANDEM_ERROR_IO, fmt::format("{} is shorter than its {} bytes of before: {} of {} bytes at {} could be read",
                                        path_, byte_count(), got, bytes.size(), offset));
    read_bytes_ += bytes.size();
  }
  std::uint64_t read_bytes() const { return read_bytes_; }

  // Throws if the file has changed since the beginning.
  void check_same() const {
    struct stat now;
    if (stat(path_.c_str(), &now) != 0) fail_io("look at", path_, errno);
    if (now.st_size != before_.st_size)
      fail(TANDEM_ERROR_IO, fmt::format("{} changed while it was read: it had {} bytes and has {}", path_,
                                        before_.st_size, now.st_size));
    if (!base::unchanged(before_, now)) fail(TANDEM_ERROR_IO, fmt::format("{} changed while it was read", path_));
  }

 private:
  void check_file(int code, const char *what) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(TANDEM_ERROR_IO, fmt::format("cannot {} {}: {}", what, path_, text));
  }

  std::string path_;
  struct stat before_ = {};
  MPI_File file_ = MPI_FILE_NULL;
  std::uint64_t read_bytes_ = 0;
};

void require_equal(const World &world, const tandem_files_encode_options &options, const std::string &name,
                   const std::string &folders) {
  world.require_equal({{"source_path", options.source_path},
                       {"k", std::to_string(options.k)},
                       {"m", std::to_string(options.m)},
                       {"matrix", std::to_string(options.matrix)},
                       {"allow_non_mds", std::to_string(options.allow_non_mds != 0)},
                       {"block_bytes", std::to_string(options.block_bytes)},
                       {"folders", folders},
                       {"name", name},
                       {"force", std::to_string(options.force != 0)},
                       {"no_sync", std::to_string(options.no_sync != 0)},
                       {"dry_run", std::to_string(options.dry_run != 0)},
                       {"mode", std::to_string(options.mode)},
                       {"set_id", options.set_id != nullptr ? base::hexadecimal({options.set_id, 16}) : "random"}});
}

Outcome try_out(const World &world, tandem_context *context, const tandem_files_encode_options &options) {
  auto result = sized<tandem_files_result>();
  world.together([&] {
    if (world.leads()) check(tandem_files_encode(context, &options, &result));
  });
  return {add_up(world, result, world.leads() ? result : sized<tandem_files_result>()), work_of(world, 0)};
}

}  // namespace

Outcome encode(const World &world, tandem_context *context, const tandem_files_encode_options *given) {
  const Clock::time_point began = Clock::now();
  tandem_files_encode_options options = {};
  std::string name, folders;
  std::unique_ptr<Source> source;
  auto info = sized<tandem_context_info>();
  world.together([&] {
    check(tandem_context_query(context, &info));
    options = read_options(given, "tandem_files_encode_options");
    if (options.source_path == nullptr || options.source_descriptor != 0)
      fail(TANDEM_ERROR_INVALID_ARGUMENT, "ranks encode the file that source_path names, and no descriptor");
    folders = listed(options.folders, options.folder_count, "folders");
    const std::string path = options.source_path;
    name = options.name != nullptr ? options.name : path.substr(path.find_last_of('/') + 1);
  });
  require_equal(world, options, name, folders);
  std::uint64_t byte_count = 0;
  world.together([&] {
    source = std::make_unique<Source>(options.source_path);
    byte_count = source->byte_count();
  });
  world.broadcast(&byte_count, sizeof byte_count);
  world.together([&] {
    if (source->byte_count() != byte_count)
      fail(TANDEM_ERROR_IO,
           fmt::format("{} has {} bytes here and {} on rank 0", options.source_path, source->byte_count(), byte_count));
  });
  if (options.dry_run != 0) return try_out(world, context, options);

  Progress progress(options.progress, options.progress_user, world.size(), byte_count);
  std::uint8_t set_id[16] = {};
  if (options.set_id != nullptr) std::memcpy(set_id, options.set_id, sizeof set_id);
  world.together([&] {
    if (world.leads() && options.set_id == nullptr) base::random_bytes(set_id);
  });
  world.broadcast(set_id, sizeof set_id);
  if (options.mode == 0) options.mode = source->mode();
  options.set_id = set_id;
  options.name = name.c_str();
  options.source_path = nullptr;
  options.progress = progress.callback();
  options.progress_user = &progress;

  std::unique_ptr<tandem_files_writer, Destroy> writer;
  const auto begin = [&] {
    tandem_files_writer *raw = nullptr;
    check(tandem_files_writer_begin(context, &options, byte_count, world.leads() ? 0 : 1, &raw));
    writer.reset(raw);
  };
  auto set = sized<tandem_files_set>();
  world.together([&] {
    if (world.leads()) begin();
  });
  world.together([&] {
    if (!world.leads()) begin();
    check(tandem_files_writer_query(writer.get(), &set));
  });

  const Rounds rounds(set, world.size());
  std::vector<std::byte> content, hashes;
  world.together([&] { content.resize(rounds.most_bytes()); });
  try {
    world.together([&] { source->open_shared(world); });
  } catch (const Error &) {
    source->abandon();
    throw;
  }
  for (std::uint64_t round = 0; round < rounds.count(); ++round) {
    const Part part = rounds.part(round, world.rank());
    const std::span<std::byte> bytes(content.data(), rounds.byte_count(part));
    const tandem_status read = guarded([&] { source->read(rounds.first_byte(part), bytes); });
    world.together([&] {
      check(read);
      progress.begin_round(rounds, round);
      progress.check_cancelled();
      hashes.resize(rounds.hash_bytes(part));
      check(tandem_files_writer_write(writer.get(), part.first, part.count, bytes.data(), bytes.size(), hashes.data()));
    });
    const std::vector<std::size_t> lengths = rounds.hash_bytes_of(round);
    const std::vector<std::byte> all = world.gather(hashes, lengths);
    world.together([&] {
      if (!world.leads()) return;
      std::size_t at = lengths[0];  // its writer knows its own hashes
      for (int rank = 1; rank < world.size(); ++rank) {
        const Part theirs = rounds.part(round, rank);
        const std::size_t length = lengths[static_cast<std::size_t>(rank)];
        check(tandem_files_writer_add(writer.get(), theirs.first, theirs.count, all.data() + at, length));
        at += length;
      }
    });
  }
  auto result = sized<tandem_files_result>();
  // The set counts only after every rank's stripes are on the disk.
  world.together([&] {
    source->check_same();
    if (!world.leads()) check(tandem_files_writer_commit(writer.get(), &result));
  });
  world.together([&] {
    if (world.leads()) check(tandem_files_writer_commit(writer.get(), &result));
  });
  writer.reset();
  result.thread_count = options.thread_count != 0 ? options.thread_count : info.caller_count;
  result.read_bytes = source->read_bytes();
  Outcome outcome{add_up(world, result, result), work_of(world, source->read_bytes())};
  outcome.files.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return outcome;
}

}  // namespace tandem::mpi
