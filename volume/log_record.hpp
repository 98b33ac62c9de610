// SPDX-License-Identifier: Apache-2.0
// The record of a transaction in the log: whole blocks and their places. docs/internals/VOLUME.md has its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "volume/superblock.hpp"

namespace tandem::volume {

enum class ItemKind : std::uint32_t { block = 0, page = 1 };

struct LogItem {
  std::uint32_t member = 0;
  ItemKind kind = ItemKind::block;
  std::uint64_t number = 0;            // of the block in the data area, or of the page in the table
  const std::byte *payload = nullptr;  // kBlockBytes
};

// The number of items that a log of this size can hold.
std::uint64_t most_log_items(std::uint64_t log_bytes);

// The record's bytes: a multiple of kBlockBytes. `bytes_out` gets their number.
Buffer write_log_record(const VolumeId &id, std::uint64_t sequence, std::span<const LogItem> items,
                        std::size_t *bytes_out);

// The length in bytes and the sequence number of a record that begins with this block; nothing if there is none.
struct LogHead {
  std::uint64_t sequence = 0, bytes = 0;
};
std::optional<LogHead> parse_log_head(const VolumeId &id, const Geometry &geometry,
                                      std::span<const std::byte, kBlockBytes> bytes);

// The items of a complete record; payloads point into `bytes`. Nothing if it is torn or invalid.
std::optional<std::vector<LogItem>> parse_log_record(const VolumeId &id, const Geometry &geometry,
                                                     std::span<const std::byte> bytes);

}  // namespace tandem::volume
