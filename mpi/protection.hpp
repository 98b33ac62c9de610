// SPDX-License-Identifier: Apache-2.0
// The parity file that protect writes beside the data of each rank: docs/internals/MPI.md has the layout of a group,
// and the bytes of the file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mpi/local_file.hpp"

namespace tandem::mpi {

using Hash = std::array<std::uint8_t, 16>;
using SetId = std::array<std::uint8_t, 16>;

// The layout of a group of k + m members. Stripe s, 0 .. k + m - 1, has its parity i on member s - i, and a segment of
// each other member.
struct Layout {
  std::uint32_t k = 0, m = 0;

  std::uint32_t size() const { return k + m; }
  // The member's place in the stripe's parity. m or more: it has data there.
  std::uint32_t parity_of(std::uint32_t member, std::uint32_t stripe) const {
    return (stripe + size() - member) % size();
  }
  bool has_parity(std::uint32_t member, std::uint32_t stripe) const { return parity_of(member, stripe) < m; }
  // The number of a member's segment in the stripe, out of k: its stripes with data are counted in order.
  std::uint32_t segment_of(std::uint32_t member, std::uint32_t stripe) const;
  // The place of a member's cell among the stripe's k data columns, then its m parity columns.
  std::uint32_t place_of(std::uint32_t member, std::uint32_t stripe) const;
};

struct DataFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;
};

struct Member {
  std::uint32_t rank = 0;  // of the job that protected
  std::vector<DataFile> files;
  std::vector<Hash> hashes;  // of the cells, by stripe
  std::uint64_t data_bytes() const;
  std::string serialized() const;
};
Member parse_member(const std::string &bytes);

// What the file's header says of its set and of its place there. Ranks send it to each other as bytes.
struct ProtectionPlace {
  SetId set_id = {};
  std::uint64_t sequence = 0;
  Layout layout;
  std::int32_t matrix = 0;
  std::uint32_t group_count = 0, group = 0, member = 0;
  std::uint64_t segment_bytes = 0;
};

// The file's header.
struct Protection : ProtectionPlace {
  std::vector<Member> members;  // of the group

  std::string serialized() const;  // a multiple of 4096 bytes
  std::uint64_t file_bytes() const { return serialized().size() + layout.m * segment_bytes; }
};
// Throws DAMAGED (no intact header) or UNSUPPORTED (another version).
Protection read_protection(const std::string &path);
// Parses the first header in `bytes`, which another rank serialized, and removes it from `bytes`.
Protection take_protection(std::string_view &bytes);

// "NAME.00003.SETID.tandem-parity".
std::string protection_name(const std::string &name, std::uint32_t rank, const SetId &set_id);
std::string pending_protection_name(const std::string &name, std::uint32_t rank, const SetId &set_id);
struct FoundFile {
  std::string path;
  std::uint32_t rank;
  SetId set_id;
  bool pending;
};
// Files of this name in a folder, which may not exist.
std::vector<FoundFile> find_protections(const std::string &folder, const std::string &name);
// Throws INVALID_ARGUMENT.
void check_protection_name(const char *name);
// Bytes of one message; 0 = the default. Throws INVALID_ARGUMENT.
std::uint32_t checked_piece_bytes(std::uint32_t given);
// Makes a folder and its parents, and syncs those that got an entry.
void make_folders(const std::string &folder, bool no_sync);

}  // namespace tandem::mpi
