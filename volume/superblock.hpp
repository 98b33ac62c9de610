// SPDX-License-Identifier: Apache-2.0
// The superblock: the description of the whole volume on every member. docs/internals/VOLUME.md has its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "volume/layout.hpp"

namespace tandem::volume {

using VolumeId = std::array<std::uint8_t, TANDEM_VOLUME_ID_BYTES>;

struct Window {
  std::uint64_t first_stripe = 0, stripe_count = 0;
  std::uint64_t end() const { return first_stripe + stripe_count; }
  bool operator==(const Window &) const = default;
};

enum class Standing : std::uint8_t { current = 0, rebuilding = 1, lost = 2 };

inline constexpr std::size_t kSessionsKept = 32;
inline constexpr int kSessionShift = 40;  // of the session in a sequence number
inline constexpr std::uint64_t kMostSessions = std::uint64_t{1} << 23;

struct Superblock {
  VolumeId id{};
  Geometry geometry;
  std::uint32_t index = 0;    // of the member that it lies on
  std::uint64_t epoch = 0;    // grows when a member is lost, replaced or rebuilt
  std::uint64_t counter = 0;  // grows with every writing of superblocks
  std::uint64_t settled = 0;  // the counter of the last writing that reached all current members
  std::uint64_t session = 0;  // grows with every opening that commits: bits 40 to 62 of its sequence numbers
  std::uint64_t scrub_stripe = 0;
  std::array<std::uint64_t, kSessionsKept> session_tags{};  // random; of session s at s mod 32
  std::vector<Standing> standings;                          // of the k+m members
  std::vector<std::uint32_t> member_tags;                   // random; changes with a replace
  std::vector<Window> windows;                              // of delayed parity; sorted, disjoint

  // A session begins with two writings, and nothing else is written between them. So after a first one that did not
  // reach all members, nothing was written in its session.
  bool is_of_a_begun_session() const { return settled + 1 == counter; }
  bool operator==(const Superblock &) const = default;
};

enum class SuperblockResult { superblock, none, damaged, other_version };

using SuperblockBytes = std::array<std::byte, kBlockBytes>;
void write_superblock(const Superblock &superblock, SuperblockBytes &bytes);
// Writes to `superblock` only when it returns SuperblockResult::superblock.
SuperblockResult parse_superblock(std::span<const std::byte, kBlockBytes> bytes, Superblock *superblock);

}  // namespace tandem::volume
