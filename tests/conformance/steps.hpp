// Computes an operator from its steps. Every backend must give the same result.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/operator.hpp"
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

inline Shards outputs_of(const std::vector<core::Step> &steps, Shards inputs, unsigned output_count,
                         std::size_t bytes) {
  const std::size_t first_output = inputs.size();
  Shards slots = std::move(inputs);
  slots.resize(first_output + output_count);
  for (const core::Step &step : steps) {
    std::vector<const std::uint8_t *> from;
    for (const std::uint32_t slot : step.from) from.push_back(slots.at(slot).data());
    Shards sums = expected(step.coefficients.data(), step.to.size(), step.from.size(), from.data(), bytes);
    for (std::size_t r = 0; r < step.to.size(); ++r) {
      if (step.to[r] >= slots.size()) slots.resize(step.to[r] + 1);
      slots[step.to[r]] = std::move(sums[r]);
    }
  }
  slots.resize(first_output + output_count);
  slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(first_output));
  return slots;
}

}  // namespace tandem::test
