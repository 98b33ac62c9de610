// SPDX-License-Identifier: Apache-2.0
// The cells of one member of a group: its parity, and segments of its files. The files count as one sequence of bytes,
// followed by zeros.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "mpi/exchange.hpp"
#include "mpi/protection.hpp"

namespace tandem::mpi {

// Consecutive files. Offsets are in the whole sequence.
class FileRow {
 public:
  FileRow() = default;
  explicit FileRow(std::vector<DataFile> files) : files_(std::move(files)), descriptors_(files_.size()) {}

  const std::vector<DataFile> &files() const { return files_; }
  void set_descriptor(std::size_t file, Descriptor descriptor) { descriptors_[file] = std::move(descriptor); }
  int descriptor(std::size_t file) const { return descriptors_[file].get(); }
  // Throws if a file is shorter than before. After the last file there are zeros.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Bytes after the last file are dropped.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  template <class Body>  // (file, offset in it, begin of its bytes, how many)
  void each_part(std::uint64_t offset, std::size_t count, Body body) const;

  std::vector<DataFile> files_;
  std::vector<Descriptor> descriptors_;
};

class Cells : public Held {
 public:
  // header_bytes: offset of the parity in its file. The caller has opened files and parity file.
  Cells(const Layout &layout, std::uint32_t member, std::uint64_t segment_bytes, std::uint64_t header_bytes);

  FileRow data;
  int parity = -1;  // a descriptor, not owned
  std::string parity_path;

  void read(std::uint32_t stripe, std::uint64_t offset, std::span<std::byte> bytes) override;
  void write(std::uint32_t stripe, std::uint64_t offset, std::span<const std::byte> bytes) override;

  // Hashes of the cells that were read or written from beginning to end, by stripe; others are zeros.
  std::vector<Hash> hashes() const;
  std::uint64_t read_bytes() const { return read_bytes_; }
  std::uint64_t written_bytes() const { return written_bytes_; }

 private:
  void hash(std::uint32_t stripe, std::uint64_t offset, std::span<const std::byte> bytes);

  Layout layout_;
  std::uint32_t member_;
  std::uint64_t segment_bytes_, header_bytes_, read_bytes_ = 0, written_bytes_ = 0;
  struct Hashing {
    std::optional<base::StreamHash> hasher;  // XXH3-128
    std::uint64_t done_bytes = 0;
  };
  std::vector<Hashing> hashing_;  // by stripe
};

}  // namespace tandem::mpi
