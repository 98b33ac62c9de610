// SPDX-License-Identifier: Apache-2.0
// Where everything lies on the members: pure arithmetic.
//
//   0        two copies of the superblock
//   64 KiB   log
//            table of checksums: a page for every 170 blocks of the data area
//            data area: unit s of the member belongs to stripe s
#pragma once

#include <cstdint>

#include "base/rounding.hpp"
#include "volume/bytes.hpp"

namespace tandem::volume {

inline constexpr std::uint64_t kLogOffset = 65536;
inline constexpr std::uint64_t kEntriesPerPage = 170;
inline constexpr std::uint64_t kMostMemberBytes = std::uint64_t{1} << 60;
inline constexpr std::uint64_t kMostLogBytes = std::uint64_t{16} << 30;  // a record is read as a whole

struct Geometry {
  std::uint32_t k = 0, m = 0;
  std::int32_t matrix = 0, allow_non_mds = 0;
  std::uint32_t unit_bytes = 0;
  std::uint64_t stripe_count = 0, log_bytes = 0;

  bool operator==(const Geometry &) const = default;

  std::uint32_t member_count() const { return k + m; }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(unit_bytes / kBlockBytes); }
  std::uint64_t stripe_bytes() const { return std::uint64_t{k} * unit_bytes; }
  std::uint64_t volume_bytes() const { return stripe_count * stripe_bytes(); }
  std::uint64_t block_count() const { return stripe_count * rows(); }  // of a member
  std::uint64_t page_count() const { return base::divide_up(block_count(), kEntriesPerPage); }
  std::uint64_t table_offset() const { return kLogOffset + log_bytes; }
  std::uint64_t page_offset(std::uint64_t page) const { return table_offset() + page * kBlockBytes; }
  std::uint64_t data_offset() const { return round_up(page_offset(page_count()), 65536u); }
  std::uint64_t block_offset(std::uint64_t block) const { return data_offset() + block * kBlockBytes; }
  std::uint64_t member_bytes() const { return block_offset(block_count()); }
  std::uint64_t first_block(std::uint64_t stripe) const { return stripe * rows(); }

  // Parity rotates as in RAID-5 left-symmetric. The parity columns of stripe s begin at member n-1 - s mod n, and data
  // follows them. So k+m consecutive units of data lie on k+m different members.
  std::uint32_t first_member(std::uint64_t stripe) const {
    return member_count() - 1 - static_cast<std::uint32_t>(stripe % member_count());
  }
  std::uint32_t member_of(std::uint64_t stripe, std::uint32_t column) const {
    return (first_member(stripe) + (column < k ? m + column : column - k)) % member_count();
  }

  // Upper bound of the table pages that hold the entries of `row_count` rows in `column_count` columns.
  std::uint64_t most_pages(std::uint64_t column_count, std::uint64_t row_count) const {
    return column_count * ((row_count + kEntriesPerPage - 2) / kEntriesPerPage + 1);
  }
  // Upper bound of the blocks and pages that one change adds to a transaction.
  std::uint64_t most_items(std::uint64_t column_count, std::uint64_t row_count) const {
    return column_count * row_count + most_pages(column_count, row_count);
  }
  std::uint64_t most_items(std::uint64_t row_count) const { return most_items(member_count(), row_count); }
};

// No sum or product overflows for a geometry within limits.
inline bool is_in_limits(const Geometry &geometry) {
  return geometry.k >= 1 && geometry.m >= 1 && geometry.k <= TANDEM_VOLUME_MAX_MEMBERS &&
         geometry.m <= TANDEM_VOLUME_MAX_MEMBERS && geometry.member_count() <= TANDEM_VOLUME_MAX_MEMBERS &&
         geometry.unit_bytes >= kBlockBytes && geometry.unit_bytes <= 1u << 24 &&
         geometry.unit_bytes % kBlockBytes == 0 && geometry.stripe_count >= 1 &&
         geometry.stripe_count <= kMostMemberBytes / geometry.stripe_bytes() && geometry.log_bytes >= kBlockBytes &&
         geometry.log_bytes <= kMostLogBytes && geometry.log_bytes % kBlockBytes == 0;
}

}  // namespace tandem::volume
