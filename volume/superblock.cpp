// SPDX-License-Identifier: Apache-2.0
#include "volume/superblock.hpp"

#include <algorithm>

namespace tandem::volume {
namespace {

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'V', 'O', 'L', '\x1a'};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kTagsAt = 128, kStandingsAt = 384, kMemberTagsAt = 640, kWindowsAt = 1664, kHashAt = 4088;
constexpr std::uint64_t kMostWritings = std::uint64_t{1} << 63;  // no volume gets there

}  // namespace

void write_superblock(const Superblock &from, SuperblockBytes &bytes) {
  bytes.fill(std::byte{0});
  std::byte *const at = bytes.data();
  std::memcpy(at, kMagic, sizeof kMagic);
  store(at + 8, kVersion);
  store(at + 12, from.index);
  std::memcpy(at + 16, from.id.data(), from.id.size());
  store(at + 32, from.geometry.k);
  store(at + 36, from.geometry.m);
  store(at + 40, from.geometry.matrix);
  store(at + 44, from.geometry.allow_non_mds);
  store(at + 48, from.geometry.unit_bytes);
  store(at + 52, static_cast<std::uint32_t>(from.windows.size()));
  store(at + 56, from.geometry.stripe_count);
  store(at + 64, from.geometry.log_bytes);
  store(at + 72, from.epoch);
  store(at + 80, from.counter);
  store(at + 88, from.session);
  store(at + 96, from.scrub_stripe);
  store(at + 104, from.settled);
  for (std::size_t i = 0; i < kSessionsKept; ++i) store(at + kTagsAt + 8 * i, from.session_tags[i]);
  for (std::size_t i = 0; i < from.standings.size(); ++i) at[kStandingsAt + i] = std::byte(from.standings[i]);
  for (std::size_t i = 0; i < from.member_tags.size(); ++i) store(at + kMemberTagsAt + 4 * i, from.member_tags[i]);
  for (std::size_t i = 0; i < from.windows.size(); ++i) {
    store(at + kWindowsAt + 16 * i, from.windows[i].first_stripe);
    store(at + kWindowsAt + 16 * i + 8, from.windows[i].stripe_count);
  }
  store(at + kHashAt, hash64(at, kHashAt));
}

SuperblockResult parse_superblock(std::span<const std::byte, kBlockBytes> bytes, Superblock *superblock) {
  const std::byte *const at = bytes.data();
  if (std::memcmp(at, kMagic, sizeof kMagic) != 0) return SuperblockResult::none;
  if (load<std::uint64_t>(at + kHashAt) != hash64(at, kHashAt)) return SuperblockResult::damaged;
  if (load<std::uint32_t>(at + 8) != kVersion) return SuperblockResult::other_version;
  Superblock found;
  found.index = load<std::uint32_t>(at + 12);
  std::memcpy(found.id.data(), at + 16, found.id.size());
  Geometry &geometry = found.geometry;
  geometry.k = load<std::uint32_t>(at + 32);
  geometry.m = load<std::uint32_t>(at + 36);
  geometry.matrix = load<std::int32_t>(at + 40);
  geometry.allow_non_mds = load<std::int32_t>(at + 44);
  geometry.unit_bytes = load<std::uint32_t>(at + 48);
  geometry.stripe_count = load<std::uint64_t>(at + 56);
  geometry.log_bytes = load<std::uint64_t>(at + 64);
  const std::uint32_t window_count = load<std::uint32_t>(at + 52);
  if (!is_in_limits(geometry) || found.index >= geometry.member_count() || window_count > TANDEM_VOLUME_MAX_WINDOWS)
    return SuperblockResult::damaged;
  found.epoch = load<std::uint64_t>(at + 72);
  found.counter = load<std::uint64_t>(at + 80);
  found.session = load<std::uint64_t>(at + 88);
  found.scrub_stripe = load<std::uint64_t>(at + 96);
  found.settled = load<std::uint64_t>(at + 104);
  if (found.session >= kMostSessions || found.scrub_stripe > geometry.stripe_count) return SuperblockResult::damaged;
  if (found.epoch >= kMostWritings || found.counter >= kMostWritings || found.settled > found.counter)
    return SuperblockResult::damaged;
  for (std::size_t i = 0; i < kSessionsKept; ++i) found.session_tags[i] = load<std::uint64_t>(at + kTagsAt + 8 * i);
  for (std::size_t i = 0; i < geometry.member_count(); ++i) {
    const auto standing = static_cast<Standing>(at[kStandingsAt + i]);
    if (standing > Standing::lost) return SuperblockResult::damaged;
    found.standings.push_back(standing);
    found.member_tags.push_back(load<std::uint32_t>(at + kMemberTagsAt + 4 * i));
  }
  std::uint64_t behind = 0;
  for (std::size_t i = 0; i < window_count; ++i) {
    const Window window{load<std::uint64_t>(at + kWindowsAt + 16 * i),
                        load<std::uint64_t>(at + kWindowsAt + 16 * i + 8)};
    if (window.first_stripe < behind || window.stripe_count == 0 || window.first_stripe >= geometry.stripe_count ||
        window.stripe_count > geometry.stripe_count - window.first_stripe)
      return SuperblockResult::damaged;
    behind = window.end();
    found.windows.push_back(window);
  }
  *superblock = std::move(found);
  return SuperblockResult::superblock;
}

}  // namespace tandem::volume
