// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the parsers of bytes from a member of a volume: superblock, record of the log, page of the table. In memory
// only. Checksums are corrected first, unless the input says no, so that the code behind their check runs. The oracle
// is a second, independent statement of the limits of docs/internals/VOLUME.md.
#include <vector>

#include "tests/fuzz/input.hpp"
#include "volume/log_record.hpp"
#include "volume/page.hpp"
#include "volume/superblock.hpp"

namespace tandem::volume {
namespace {

using test::FuzzInput;
using test::wrong;

void edit(FuzzInput &input, std::byte *at, std::size_t byte_count) {
  while (input.left() >= 3) at[input.number<std::uint16_t>() % byte_count] = static_cast<std::byte>(input.byte());
}

Geometry take_geometry(FuzzInput &input, bool in_limits) {
  Geometry geometry;
  geometry.k = input.byte() % 16 + 1u;
  geometry.m = input.byte() % 4 + 1u;
  geometry.unit_bytes = (input.byte() % 16 + 1u) * 4096;
  geometry.stripe_count = input.number<std::uint16_t>() + 1u;
  geometry.log_bytes = (input.byte() + 1u) * 4096;
  if (!in_limits) {
    geometry.k = input.number<std::uint16_t>();
    geometry.m = input.number<std::uint32_t>();
    geometry.unit_bytes = input.number<std::uint32_t>();
    geometry.stripe_count = input.number<std::uint64_t>();
    geometry.log_bytes = input.number<std::uint64_t>();
  }
  geometry.matrix = input.byte();
  return geometry;
}

void fuzz_superblock(FuzzInput &input, bool sum) {
  Superblock written;
  const unsigned flags = input.byte();
  written.geometry = take_geometry(input, (flags & 1) != 0);
  written.index = input.byte();
  written.epoch = input.number<std::uint64_t>();
  written.counter = input.number<std::uint64_t>();
  written.session = input.number<std::uint32_t>();
  written.scrub_stripe = input.number<std::uint16_t>();
  const std::size_t members = flags & 1 ? written.geometry.k + written.geometry.m : 256;
  for (std::size_t i = 0; i < members; ++i)
    written.standings.push_back(static_cast<Standing>(flags & 2 ? i % 3 : i % 5));
  written.member_tags.assign(members, 0x01020304);
  std::uint64_t at = 0;
  for (unsigned i = input.byte() % 66; i != 0 && written.windows.size() < 64; --i) {
    at += input.byte();
    written.windows.push_back({at, input.byte()});
    at += flags & 4 ? written.windows.back().stripe_count : 0;
  }
  SuperblockBytes bytes;
  write_superblock(written, bytes);
  edit(input, bytes.data(), bytes.size());
  if (sum) store(bytes.data() + 4088, hash64(bytes.data(), 4088));

  const std::byte *b = bytes.data();
  __extension__ using Wide = unsigned __int128;
  const Wide k = load<std::uint32_t>(b + 32), m = load<std::uint32_t>(b + 36), unit = load<std::uint32_t>(b + 48),
             stripes = load<std::uint64_t>(b + 56), log = load<std::uint64_t>(b + 64);
  const std::uint32_t windows = load<std::uint32_t>(b + 52);
  bool in_limits = k >= 1 && m >= 1 && k + m <= 256 && load<std::uint32_t>(b + 12) < k + m && unit >= 4096 &&
                   unit <= 1 << 24 && unit % 4096 == 0 && stripes >= 1 && stripes * k * unit <= Wide{1} << 60 &&
                   log >= 4096 && log % 4096 == 0 && log <= Wide{16} << 30 && windows <= 64 &&
                   load<std::uint64_t>(b + 72) < Wide{1} << 63 && load<std::uint64_t>(b + 80) < Wide{1} << 63 &&
                   load<std::uint64_t>(b + 88) < 1 << 23 && load<std::uint64_t>(b + 96) <= stripes &&
                   load<std::uint64_t>(b + 104) <= load<std::uint64_t>(b + 80);
  for (std::size_t i = 0; in_limits && i < k + m; ++i) in_limits = static_cast<unsigned>(b[384 + i]) <= 2;
  Wide behind = 0;
  for (std::size_t i = 0; in_limits && i < windows; ++i) {
    const Wide first = load<std::uint64_t>(b + 1664 + 16 * i), count = load<std::uint64_t>(b + 1672 + 16 * i);
    in_limits = first >= behind && count >= 1 && first + count <= stripes;
    behind = first + count;
  }

  Superblock found;
  const Superblock untouched = found;
  const SuperblockResult result = parse_superblock(bytes, &found);
  if (result != SuperblockResult::superblock && !(found == untouched)) wrong("refused and written to");
  if (std::memcmp(b, "TNDMVOL\x1a", 8) != 0) return result == SuperblockResult::none ? void() : wrong("magic number");
  if (load<std::uint64_t>(b + 4088) != hash64(b, 4088))
    return result == SuperblockResult::damaged ? void() : wrong("a superblock with a wrong checksum");
  if (load<std::uint32_t>(b + 8) != 2)
    return result == SuperblockResult::other_version ? void() : wrong("a superblock of another version");
  if ((result == SuperblockResult::superblock) != in_limits) wrong("limits of a superblock");
  if (!in_limits) return;
  const Geometry &geometry = found.geometry;
  const Wide blocks = stripes * (unit / 4096), pages = (blocks + 169) / 170;
  const Wide data = (65536 + log + pages * 4096 + 65535) / 65536 * 65536;
  if (geometry.data_offset() != data || geometry.member_bytes() != data + stripes * unit) wrong("offsets");
  if (geometry.page_offset(geometry.page_count()) > geometry.data_offset()) wrong("the table reaches into the data");
  SuperblockBytes again;
  write_superblock(found, again);
  Superblock twice;
  if (parse_superblock(again, &twice) != SuperblockResult::superblock || !(twice == found))
    wrong("a superblock that reads back differently");
}

void fuzz_log(FuzzInput &input, bool sum) {
  const Geometry geometry = take_geometry(input, true);
  const VolumeId id{1, 2, 3};
  const std::vector<std::byte> payload(kBlockBytes, std::byte{0x5a});
  std::vector<LogItem> items;
  for (unsigned i = input.byte() % 6; i != 0; --i)
    items.push_back(
        {input.byte(), static_cast<ItemKind>(input.byte() % 3), input.number<std::uint32_t>(), payload.data()});
  std::size_t bytes = 0;
  const Buffer buffer = write_log_record(id, input.number<std::uint64_t>(), items, &bytes);
  edit(input, buffer.data(), std::min<std::size_t>(bytes, 300));
  if (sum) {
    store(buffer.data() + 40, hash64(buffer.data() + 64, bytes - 64));
    store(buffer.data() + 56, hash64(buffer.data(), 56));
  }
  const auto head = parse_log_head(id, geometry, std::span<const std::byte, kBlockBytes>(buffer.data(), kBlockBytes));
  if (head && (head->bytes > geometry.log_bytes || head->bytes % kBlockBytes != 0))
    wrong("a record longer than the log");
  const auto found = parse_log_record(id, geometry, {buffer.data(), bytes});
  if (!found) return;
  if (!head || head->bytes != bytes) wrong("a record without a head");
  if (load<std::uint64_t>(buffer.data() + 40) != hash64(buffer.data() + 64, bytes - 64)) wrong("a torn record");
  if (bytes > geometry.log_bytes) wrong("a record that does not fit");
  for (const LogItem &each : *found) {
    if (each.member >= geometry.k + geometry.m) wrong("an item of no member");
    const std::uint64_t offset =
        each.kind == ItemKind::page ? geometry.page_offset(each.number) : geometry.block_offset(each.number);
    const std::uint64_t begin = each.kind == ItemKind::page ? geometry.table_offset() : geometry.data_offset();
    const std::uint64_t end = each.kind == ItemKind::page ? geometry.data_offset() : geometry.member_bytes();
    if (offset < begin || offset + kBlockBytes > end) wrong("an item outside of its area");
    if (each.payload < buffer.data() || each.payload + kBlockBytes > buffer.data() + bytes) wrong("a payload outside");
  }
}

void fuzz_page(FuzzInput &input, bool sum) {
  const Seed seed(VolumeId{4, 5});
  const std::uint32_t member = input.byte();
  const std::uint64_t number = input.number<std::uint32_t>();
  Page page = page_of({input.number<std::uint64_t>(), input.number<std::uint64_t>()}, input.number<std::uint64_t>());
  seal_page(seed, member, number, page);
  const Page sealed = page;
  const bool moved = input.byte() & 1;
  edit(input, reinterpret_cast<std::byte *>(&page), sizeof page);
  const bool changed = std::memcmp(&page, &sealed, sizeof page) != 0;
  if (sum) seal_page(seed, member, number, page);
  const Page before = page;
  const bool good = check_page(seed, member, number + moved, page);
  if (good != (!moved && (sum || !changed))) wrong("the checksum of a page");
  if (good && std::memcmp(&page, &before, sizeof page) != 0) wrong("a good page changed");
  for (const Entry &entry : page.entries)
    if (!good && !(entry == kLostEntry)) wrong("a rotten page says something");
}

}  // namespace
}  // namespace tandem::volume

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::FuzzInput input(data, size);
  const unsigned kind = input.byte();
  const bool sum = kind < 0xc0;
  if (kind % 4 < 2) {
    tandem::volume::fuzz_superblock(input, sum);
  } else if (kind % 4 == 2) {
    tandem::volume::fuzz_log(input, sum);
  } else {
    tandem::volume::fuzz_page(input, sum);
  }
  return 0;
}
