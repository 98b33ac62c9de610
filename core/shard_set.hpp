// SPDX-License-Identifier: Apache-2.0
// A set of shards of one stripe, data first. It grows with the largest index, and allocates nothing up to 256 shards.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::core {

class ShardSet {
 public:
  bool operator[](std::size_t shard) const noexcept { return word(shard / kBits) >> shard % kBits & 1; }
  void set(std::size_t shard) { word_to_set(shard / kBits) |= std::uint64_t{1} << shard % kBits; }
  bool none() const noexcept { return *this == ShardSet(); }
  // One more than the largest index; 0 for the empty set.
  std::size_t end() const noexcept {
    for (std::size_t i = word_count(); i-- != 0;)
      if (word(i) != 0) return i * kBits + static_cast<std::size_t>(std::bit_width(word(i)));
    return 0;
  }
  std::size_t hash() const noexcept {
    std::size_t hash = 1;
    for (std::size_t i = 0; i < word_count(); ++i) hash = ((hash ^ hash >> 32) ^ word(i)) * 0x9e3779b97f4a7c15u;
    return hash;
  }
  // Word by word: a wide load of a word that was just set has to wait for the store.
  bool operator==(const ShardSet &other) const noexcept {
    for (std::size_t i = 0; i < kInline; ++i)
      if (first_[i] != other.first_[i]) return false;
    return more_ == other.more_;
  }

 private:
  static constexpr std::size_t kBits = 64, kInline = 4;

  std::size_t word_count() const noexcept { return kInline + more_.size(); }
  std::uint64_t word(std::size_t i) const noexcept {
    return i < kInline ? first_[i] : i < word_count() ? more_[i - kInline] : 0;
  }

  std::uint64_t &word_to_set(std::size_t i) {
    if (i < kInline) return first_[i];
    if (i >= word_count()) more_.resize(i - kInline + 1);
    return more_[i - kInline];
  }

  std::array<std::uint64_t, kInline> first_{};
  std::vector<std::uint64_t> more_;  // the last one is not 0: equal sets are equal members
};

}  // namespace tandem::core
