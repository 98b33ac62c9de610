// SPDX-License-Identifier: Apache-2.0
// System calls with their details: EINTR, short counts, close on every path.
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

// Write everything. False with errno on failure. EFBIG beyond the process' limit, without its signal (SIGXFSZ).
bool write_at(int descriptor, const std::byte *bytes, std::size_t byte_count, std::uint64_t offset) noexcept;
bool write_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept;
bool set_length(int descriptor, std::uint64_t byte_count) noexcept;

// Reads or writes a pipe, socket, terminal or file from its position. Waits in short sleeps and checks `stop`, so that
// a call can be cancelled while the other end is silent: then -1 or false with errno = ECANCELED.
std::int64_t read_stream(int descriptor, std::byte *bytes_out, std::size_t byte_count,
                         const std::atomic<bool> &stop) noexcept;
bool write_stream(int descriptor, const std::byte *bytes, std::size_t byte_count,
                  const std::atomic<bool> &stop) noexcept;

// Throws IO, with the numbers, unless this process can open so many files for a long time, and a few more for a short
// time. what: "20 shard files".
void check_open_files(std::size_t staying_count, const std::string &what);

// "folder/name" -> "folder"; "name" -> ".".
std::string folder_of(const std::string &path);
std::string name_of(const std::string &path);
// "folder//" -> "folder"; "/" stays.
std::string without_trailing_slashes(std::string path);

// Whether it is the same file, with the same content as far as the file system shows. A program can set back the time
// of the last write (utimes), but not that of the last change.
bool unchanged(const struct stat &before, const struct stat &after) noexcept;

}  // namespace tandem::files
