// SPDX-License-Identifier: Apache-2.0
// Layouts of shards: bytes of groups in reverse, and packets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/support/expected.hpp"

namespace tandem::test {

// The bytes of each group in the order from the last to the first. The last group may be shorter.
inline void reverse_groups(std::uint64_t group_bytes, Bytes *bytes) {
  for (std::size_t at = 0; at < bytes->size(); at += group_bytes) {
    const auto begin = bytes->begin() + static_cast<std::ptrdiff_t>(at);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(group_bytes, bytes->size() - at)));
  }
}

// Packet i of every group of a shard, for each i; and back.
inline Shards packets_of(const Bytes &shard, unsigned word_bits, std::uint64_t packet_bytes) {
  Shards packets(word_bits);
  const auto step = static_cast<std::ptrdiff_t>(packet_bytes);
  for (auto at = shard.begin(); at != shard.end();)
    for (Bytes &packet : packets) {
      packet.insert(packet.end(), at, at + step);
      at += step;
    }
  return packets;
}
inline Bytes shard_of(const Bytes *packets, unsigned word_bits, std::uint64_t packet_bytes) {
  Bytes shard;
  for (std::size_t at = 0; at < packets[0].size(); at += packet_bytes)
    for (unsigned i = 0; i < word_bits; ++i) {
      const auto begin = packets[i].begin() + static_cast<std::ptrdiff_t>(at);
      shard.insert(shard.end(), begin, begin + static_cast<std::ptrdiff_t>(packet_bytes));
    }
  return shard;
}

}  // namespace tandem::test
