// SPDX-License-Identifier: Apache-2.0
#include "volume/log_record.hpp"

namespace tandem::volume {
namespace {

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'L', 'O', 'G', '\x1a'};
constexpr std::size_t kHeadBytes = 64, kItemBytes = 16;

// Without overflow for the counts of a log that is in limits.
std::uint64_t lead_bytes(std::uint64_t item_count) {
  return round_up(kHeadBytes + item_count * kItemBytes, kBlockBytes);
}
std::uint64_t record_bytes(std::uint64_t item_count) { return lead_bytes(item_count) + item_count * kBlockBytes; }

}  // namespace

std::uint64_t most_log_items(std::uint64_t log_bytes) {
  std::uint64_t count = log_bytes / (kBlockBytes + kItemBytes);
  while (count > 0 && record_bytes(count) > log_bytes) --count;
  return count;
}

Buffer write_log_record(const VolumeId &id, std::uint64_t sequence, std::span<const LogItem> items,
                        std::size_t *bytes_out) {
  const std::size_t lead = lead_bytes(items.size()), bytes = record_bytes(items.size());
  Buffer buffer(bytes);
  std::byte *const at = buffer.data();
  std::memset(at, 0, lead);
  std::memcpy(at, kMagic, sizeof kMagic);
  std::memcpy(at + 8, id.data(), id.size());
  store(at + 24, sequence);
  store(at + 32, std::uint64_t{items.size()});
  std::byte *item = at + kHeadBytes, *payload = at + lead;
  for (const LogItem &each : items) {
    store(item, each.member);
    store(item + 4, each.kind);
    store(item + 8, each.number);
    std::memcpy(payload, each.payload, kBlockBytes);
    item += kItemBytes;
    payload += kBlockBytes;
  }
  store(at + 40, hash64(at + kHeadBytes, bytes - kHeadBytes));
  store(at + 56, hash64(at, 56));
  *bytes_out = bytes;
  return buffer;
}

std::optional<LogHead> parse_log_head(const VolumeId &id, const Geometry &geometry,
                                      std::span<const std::byte, kBlockBytes> bytes) {
  const std::byte *const at = bytes.data();
  if (std::memcmp(at, kMagic, sizeof kMagic) != 0 || std::memcmp(at + 8, id.data(), id.size()) != 0) return {};
  if (load<std::uint64_t>(at + 56) != hash64(at, 56)) return {};
  const auto count = load<std::uint64_t>(at + 32);
  if (count > most_log_items(geometry.log_bytes)) return {};
  return LogHead{load<std::uint64_t>(at + 24), record_bytes(count)};
}

std::optional<std::vector<LogItem>> parse_log_record(const VolumeId &id, const Geometry &geometry,
                                                     std::span<const std::byte> bytes) {
  if (bytes.size() < kBlockBytes) return {};
  const auto head = parse_log_head(id, geometry, bytes.first<kBlockBytes>());
  if (!head || head->bytes != bytes.size()) return {};
  const std::byte *const at = bytes.data();
  if (load<std::uint64_t>(at + 40) != hash64(at + kHeadBytes, bytes.size() - kHeadBytes)) return {};
  const auto count = load<std::uint64_t>(at + 32);
  std::vector<LogItem> items(count);
  const std::byte *item = at + kHeadBytes, *payload = at + lead_bytes(count);
  for (LogItem &each : items) {
    each = {load<std::uint32_t>(item), load<ItemKind>(item + 4), load<std::uint64_t>(item + 8), payload};
    if (each.member >= geometry.member_count() || each.kind > ItemKind::page) return {};
    if (each.number >= (each.kind == ItemKind::page ? geometry.page_count() : geometry.block_count())) return {};
    item += kItemBytes;
    payload += kBlockBytes;
  }
  return items;
}

}  // namespace tandem::volume
