// SPDX-License-Identifier: Apache-2.0
// The owner of a file descriptor; system calls with their details: EINTR, short counts, signals.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace tandem::base {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}  // negative: none, as after an open that failed
  Descriptor(Descriptor &&other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() noexcept;

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Opens for reading. Never waits for a named pipe's other end. Empty, with errno, on failure.
Descriptor open_to_read(const std::string &path) noexcept;

// Read up to byte_count at an offset; fewer at the end of the file. -1 with errno on failure.
std::int64_t read_at(int descriptor, std::byte *bytes_out, std::size_t byte_count, std::uint64_t offset) noexcept;
// The same into several buffers; changes `pieces`.
std::int64_t read_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept;

// Write everything. False with errno on failure. EFBIG beyond the process' limit, without its signal (SIGXFSZ).
bool write_at(int descriptor, const std::byte *bytes, std::size_t byte_count, std::uint64_t offset) noexcept;
bool write_pieces_at(int descriptor, std::span<iovec> pieces, std::uint64_t offset) noexcept;
bool set_length(int descriptor, std::uint64_t byte_count) noexcept;
// Space for a later write, if the file system can reserve it; the file may become longer.
bool allocate(int descriptor, std::uint64_t offset, std::uint64_t byte_count) noexcept;
// Starts to write the file's changed pages to the disk, so that a later fsync waits for fewer. Promises nothing; an
// error of the disk is left to that fsync.
void start_writeback(int descriptor) noexcept;

// Whether it is the same file, with the same content as far as the file system shows. A program can set back the time
// of the last write (utimes), but not that of the last change.
bool unchanged(const struct stat &before, const struct stat &after) noexcept;

}  // namespace tandem::base
