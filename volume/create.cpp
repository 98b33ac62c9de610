// Makes a new volume on empty members, and the parts of it that a new member of an old volume needs.
#include "volume/create.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "tandem/tools.h"
#include "volume/log_record.hpp"

namespace tandem::volume {
namespace {

constexpr std::uint64_t kUsualLogBytes = 32 << 20;

// The smallest log that has enough space in a transaction for two calls on whole stripes.
std::uint64_t least_log_bytes(const Geometry &geometry) {
  const std::uint64_t items = 2 * geometry.most_items(geometry.rows());
  return round_up((items + 1) * (kBlockBytes + 16) + kBlockBytes, kBlockBytes);
}

std::uint64_t most_stripes(Geometry geometry, std::uint64_t member_bytes) {
  std::uint64_t least = 0, most = member_bytes / geometry.unit_bytes;
  while (least < most) {
    geometry.stripe_count = least + (most - least + 1) / 2;
    if (geometry.member_bytes() <= member_bytes)
      least = geometry.stripe_count;
    else
      most = geometry.stripe_count - 1;
  }
  return least;
}

// Whether it begins with a superblock, even a damaged one.
bool holds_volume(Member &member) {
  if (member.size_bytes() < 2 * kBlockBytes) return false;
  Buffer buffer(2 * kBlockBytes);
  member.read(0, buffer.data(), 2 * kBlockBytes);
  Superblock superblock;
  for (std::size_t copy = 0; copy < 2; ++copy)
    if (parse_superblock(std::span<const std::byte, kBlockBytes>(buffer.data() + copy * kBlockBytes, kBlockBytes),
                         &superblock) != SuperblockResult::none)
      return true;
  return false;
}

}  // namespace

void random_bytes(void *to, std::size_t bytes) {
  for (auto *at = static_cast<std::byte *>(to); bytes != 0;) {
    const ssize_t count = ::getrandom(at, bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(TANDEM_ERROR_IO, "getrandom gives no bytes");
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> make_codec(const Geometry &geometry) {
  tandem_codec_options options{};
  options.struct_bytes = sizeof options;
  options.k = geometry.k;
  options.m = geometry.m;
  options.matrix = geometry.matrix;
  options.allow_non_mds = geometry.allow_non_mds;
  check(tandem_matrix_field(geometry.matrix, &options.field));
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return {codec, tandem_codec_destroy};
}

void check_overwritable(const Given &given, bool force) {
  if (!force && holds_volume(*given.member))
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format("{}: holds a volume already; use --force to overwrite it", given.name));
}

void write_tables(Member &member, const Geometry &geometry, const Seed &seed, std::uint32_t index, const Entry &entry,
                  std::uint64_t sequence) {
  constexpr std::uint64_t kPagesPerWrite = 256;
  Buffer buffer(kPagesPerWrite * kBlockBytes);
  std::memset(buffer.data(), 0, kBlockBytes);
  member.write(kLogOffset, buffer.data(), kBlockBytes);  // no record of an earlier volume
  Page page = page_of(entry, sequence);
  for (std::uint64_t number = 0; number < geometry.page_count(); number += kPagesPerWrite) {
    const std::uint64_t count = std::min(kPagesPerWrite, geometry.page_count() - number);
    for (std::uint64_t i = 0; i < count; ++i) {
      seal_page(seed, index, number + i, page);
      std::memcpy(buffer.data() + i * kBlockBytes, &page, sizeof page);
    }
    member.write(geometry.page_offset(number), buffer.data(), count * kBlockBytes);
  }
}

void create_volume(std::vector<Given> members, CreateSettings settings) {
  Geometry &geometry = settings.geometry;
  if (members.size() != geometry.member_count())
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format("{} members for k = {} and m = {}", members.size(), geometry.k, geometry.m));
  make_codec(geometry);  // refuses codes that it cannot compute
  std::uint64_t smallest = kMostMemberBytes;
  for (const Given &each : members) {
    smallest = std::min(smallest, each.member->size_bytes());
    check_overwritable(each, settings.force);
  }
  const std::uint64_t least_log = least_log_bytes(geometry);
  if (geometry.log_bytes == 0)
    geometry.log_bytes = std::max(least_log, round_up(std::min(kUsualLogBytes, smallest / 16), kBlockBytes));
  if (geometry.log_bytes < least_log || geometry.log_bytes % kBlockBytes != 0 || geometry.log_bytes > kMostLogBytes)
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format(
             "log_bytes is {}: two stripes of {} + {} units need {}, at most {} are possible, in multiples of 4096",
             geometry.log_bytes, geometry.k, geometry.m, least_log, kMostLogBytes));
  geometry.stripe_count = most_stripes(geometry, smallest);
  if (geometry.stripe_count == 0) {
    geometry.stripe_count = 1;
    fail(TANDEM_ERROR_INVALID_ARGUMENT,
         fmt::format("the smallest member has {} bytes, at least {} are needed", smallest, geometry.member_bytes()));
  }
  if (!is_in_limits(geometry)) fail(TANDEM_ERROR_TOO_LARGE, fmt::format("members of {} bytes are too large", smallest));

  Superblock superblock;
  superblock.id = settings.id;
  superblock.geometry = geometry;
  superblock.counter = 1;
  superblock.standings.assign(members.size(), Standing::current);
  superblock.member_tags.resize(members.size());
  random_bytes(superblock.member_tags.data(), 4 * members.size());
  const Seed seed(superblock.id);
  // The superblocks come last: an incomplete volume is none. Old ones are erased first.
  const SuperblockBytes nothing{};
  SuperblockBytes bytes;
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    Member &member = *members[i].member;
    for (const std::uint64_t copy : {0u, 1u}) member.write(copy * kBlockBytes, nothing.data(), kBlockBytes);
    write_tables(member, geometry, seed, i, Entry{}, 0);
    member.sync();
  }
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    superblock.index = i;
    write_superblock(superblock, bytes);
    members[i].member->write(kBlockBytes, bytes.data(), kBlockBytes);
    members[i].member->sync();
  }
}

}  // namespace tandem::volume
