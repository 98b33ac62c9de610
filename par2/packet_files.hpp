// SPDX-License-Identifier: Apache-2.0
// Packet files while they are written, beside their final names.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/folder.hpp"
#include "base/pending_file.hpp"
#include "par2/calls.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {

constexpr std::uint32_t kSyncCopies = 2;  // of critical packets in a set of sync

// "base.vol03+04.par2"
std::string volume_name(const std::string &base, const Volume &volume, std::size_t first_digits,
                        std::size_t count_digits);

Bytes own_creator_body();

// Recovery slices for this percentage of the slices.
double count_of(double percent, double slice_count) noexcept;

class PacketFiles {
 public:
  // critical_bytes: of one copy of all packets that are no recovery slices. least_copies: see par2.h, critical_copies.
  PacketFiles(std::shared_ptr<base::Folder> folder, const Digest &set_id, std::uint64_t slice_bytes,
              std::uint64_t critical_bytes, std::uint32_t least_copies)
      : folder_(std::move(folder)),
        set_id_(set_id),
        packet_bytes_(kRecoveryPrefixBytes + slice_bytes),
        critical_bytes_(critical_bytes),
        least_copies_(least_copies) {}

  // remade: a file that gets the same content as far as it is right, and passes on owner, mode and times, unless it
  // has changed since then.
  void add(const std::string &name, const Volume &volume, const std::optional<struct stat> &remade = {}) {
    files_.push_back({name, volume, remade});
  }
  void make();  // when all are added: with their sizes
  std::uint64_t bytes() const;

  // Reads all slices of the set and writes the recovery slices. Returns the checksums of what was read.
  std::vector<SliceSum> code(tandem_context *context, std::span<const Place> slices, std::uint64_t memory_bytes,
                             base::Crew &crew, base::Meter &meter);

  // Writes the copies of `critical`, and gives all files their names: the first one last. If a rename fails and nothing
  // is replaced, those before it are taken back.
  void finish(std::span<const std::byte> critical, bool replaces, bool no_sync);

 private:
  struct Each {
    std::string name;
    Volume volume;
    std::optional<struct stat> remade;
    std::string temporary{};
    base::PendingFile file{};
  };
  struct Recovery {  // a packet of a recovery slice
    const Each *file;
    std::uint32_t exponent;
    std::uint64_t offset;
  };

  std::uint64_t copies_of(const Volume &volume) const;
  std::uint64_t bytes_of(const Volume &volume) const;
  std::uint64_t packets_before(const Volume &volume, std::uint64_t copy) const;
  std::uint64_t packet_offset(const Volume &volume, std::uint32_t index) const;
  base::PendingFile open(const Each &each) const { return {folder_, each.temporary}; }
  // Calls `write` for each of them, with its file.
  void write_recovery(std::span<const Recovery> some,
                      const std::function<void(const base::PendingFile &, const Recovery &)> &write) const;

  std::shared_ptr<base::Folder> folder_;
  const Digest set_id_;
  const std::uint64_t packet_bytes_, critical_bytes_;
  const std::uint32_t least_copies_;
  std::vector<Each> files_;
  std::vector<Recovery> recovery_;  // by exponent
};

}  // namespace tandem::par2
