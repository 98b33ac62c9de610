// System calls with their habits: EINTR, short counts, close on every path.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tandem::files {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor &&other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() noexcept;
  int get() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ >= 0; }

 private:
  int value_ = -1;
};

// Opens for reading. Never waits for a named pipe's other end. -1 with errno on failure.
Descriptor open_to_read(const std::string &path) noexcept;

// Read up to byte_count at an offset; fewer at the end of the file. -1 with errno on failure.
std::int64_t read_at(int descriptor, std::byte *bytes_out, std::size_t byte_count, std::uint64_t offset) noexcept;
// The same into several buffers; changes `pieces`.
std::int64_t read_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept;

// Write everything. False with errno on failure.
bool write_at(int descriptor, const std::byte *bytes, std::size_t byte_count, std::uint64_t offset) noexcept;
bool write_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept;

// A pipe, socket, terminal or file, read or written from its position. Waits in short naps that look at `stop`, so that
// a call can be cancelled while the other end is silent: then -1 or false with errno = ECANCELED.
std::int64_t read_stream(int descriptor, std::byte *bytes_out, std::size_t byte_count,
                         const std::atomic<bool> &stop) noexcept;
bool write_stream(int descriptor, const std::byte *bytes, std::size_t byte_count,
                  const std::atomic<bool> &stop) noexcept;

// Writes what a folder's entries are to disk.
void sync_folder(const std::string &folder);

// A file that is written under a temporary name in the folder where it is going to live. Removed unless committed.
class PendingFile {
 public:
  // final_path names a file whose folder exists. The temporary is ".<unique>.tandem-tmp" beside it, made new (O_EXCL: a
  // symbolic link or an older file in its place is refused).
  // mode: permission bits, or UINT32_MAX: 0666 less the process' umask.
  PendingFile(std::string final_path, const std::string &unique, std::uint32_t mode);
  PendingFile(PendingFile &&other) noexcept;
  PendingFile &operator=(PendingFile &&) = delete;
  ~PendingFile();

  int descriptor() const noexcept { return descriptor_.get(); }
  const std::string &final_path() const noexcept { return final_path_; }
  const std::string &temporary_path() const noexcept { return temporary_path_; }

  // Sets the mode, syncs unless told not to, closes: the bytes are complete.
  void finish(bool no_sync);
  // Gives it its name; an existing file is replaced only with `force`.
  void rename(bool force);
  // After rename, while this object lives: the state before, with the file that was replaced (where the file system has
  // hard links). For sets, whose files get their names one after the other.
  void take_back() noexcept;

 private:
  std::string final_path_, temporary_path_, replaced_path_;
  Descriptor descriptor_;
  std::uint32_t mode_;
  bool temporary_exists_ = false, renamed_ = false, replaced_exists_ = false;
};

// "folder/name" -> "folder"; "name" -> ".".
std::string folder_of(const std::string &path);
std::string name_of(const std::string &path);
std::string random_hexadecimal(std::size_t byte_count);
void random_bytes(std::span<std::uint8_t> bytes_out);

// Same file, same content as far as the file system tells.
bool unchanged(const struct stat &before, const struct stat &after) noexcept;

}  // namespace tandem::files
