// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <vector>

#include "tandem/tools.h"
#include "volume/engine.hpp"
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

struct Magic {
  std::size_t offset;
  std::string_view bytes, name;
};
using namespace std::string_view_literals;
constexpr Magic kMagics[] = {
    {0, "TNDMVOL\x1a"sv, "a volume"},
    {kBlockBytes, "TNDMVOL\x1a"sv, "a volume"},
    {0, "\x89TNDM\r\n\x1a"sv, "a shard of Tandem"},
    {1080, "\x53\xef"sv, "an ext2, ext3 or ext4 file system"},
    {0, "XFSB"sv, "an XFS file system"},
    {65600, "_BHRfS_M"sv, "a Btrfs file system"},
    {3, "NTFS    "sv, "an NTFS file system"},
    {4086, "SWAPSPACE2"sv, "swap space"},
    {0, "LUKS\xba\xbe"sv, "a LUKS volume"},
    {536, "LVM2 001"sv, "an LVM physical volume"},
    {4096, "\xfc\x4e\x2b\xa9"sv, "a member of an MD array"},
    {512, "EFI PART"sv, "a GPT partition table"},
    {510, "\x55\xaa"sv, "a partition table or a FAT file system"},
    {0, "%PDF"sv, "a PDF document"},
    {0, "PK\x03\x04"sv, "a ZIP archive"},
    {0,
     "\x7f"
     "ELF"sv,
     "a program or library"},
};

// What the member holds; "" if its first MiB and its last 128 KiB are zeros. MD's format 0.90 lies 64 to 128 KiB before
// the end.
std::string content_of(Member &member) {
  constexpr std::uint64_t kHeadBytes = 1 << 20, kTailBytes = 128 << 10;
  const std::uint64_t size = member.size_bytes(), head = std::min(size, kHeadBytes),
                      tail = std::min(size - head, kTailBytes);
  std::vector<char> bytes(head + tail);
  auto *const at = reinterpret_cast<std::byte *>(bytes.data());
  if (head != 0) member.read(0, at, head);
  if (tail != 0) member.read(size - tail, at + head, tail);
  const std::string_view all(bytes.data(), bytes.size());
  if (all.find_first_not_of('\0') == all.npos) return {};
  for (const Magic &each : kMagics)
    if (each.offset < head && all.substr(each.offset).starts_with(each.bytes)) return std::string(each.name);
  return "data of an unknown kind";
}

}  // namespace

std::unique_ptr<tandem_codec, void (*)(tandem_codec *)> make_codec(const Geometry &geometry) {
  auto options = sized<tandem_codec_options>();
  options.k = geometry.k;
  options.m = geometry.m;
  options.matrix = geometry.matrix;
  options.allow_non_mds = geometry.allow_non_mds;
  tandem_codec *codec = nullptr;
  check(tandem_codec_create(&options, &codec));
  return {codec, tandem_codec_destroy};
}

void check_overwritable(const Given &given, bool force) {
  if (force) return;
  if (const std::string content = content_of(*given.member); !content.empty())
    fail(TANDEM_ERROR_INVALID_ARGUMENT, given.name, ": holds ", content, " already; use --force to overwrite it");
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
    fail(TANDEM_ERROR_INVALID_ARGUMENT, members.size(), " members for k = ", geometry.k, " and m = ", geometry.m);
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
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "log_bytes is ", geometry.log_bytes, ": two stripes of ", geometry.k, " + ",
         geometry.m, " units need ", least_log, ", at most ", kMostLogBytes, " are possible, in multiples of 4096");
  geometry.stripe_count = most_stripes(geometry, smallest);
  if (geometry.stripe_count == 0) {
    geometry.stripe_count = 1;
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "the smallest member has ", smallest, " bytes, at least ",
         geometry.member_bytes(), " are needed");
  }
  if (!is_in_limits(geometry)) fail(TANDEM_ERROR_TOO_LARGE, "members of ", smallest, " bytes are too large");

  Superblock superblock;
  superblock.id = settings.id;
  superblock.geometry = geometry;
  superblock.counter = 1;
  superblock.standings.assign(members.size(), Standing::current);
  for (std::size_t i = 0; i < members.size(); ++i)
    superblock.member_tags.push_back(base::random_number<std::uint32_t>());
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
