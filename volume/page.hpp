// SPDX-License-Identifier: Apache-2.0
// A page of the table of checksums: 170 entries, one for each block of the data area. docs/internals/VOLUME.md.
#pragma once

#include <cstdint>

#include "volume/superblock.hpp"

namespace tandem::volume {

// Generation 0: the block was never written, and is zeros. kUnknown: its content is unknown, and it counts as lost.
// Else the sequence number of the transaction that wrote it, with kZeros if that one made it zeros: such a block is not
// read.
inline constexpr std::uint64_t kUnknown = UINT64_MAX, kZeros = std::uint64_t{1} << 63;
constexpr bool is_zeros(std::uint64_t generation) {
  return generation == 0 || (generation >= kZeros && generation != kUnknown);
}
constexpr std::uint64_t transaction_of(std::uint64_t generation) { return generation & ~kZeros; }

struct Entry {
  std::uint64_t checksum = 0, generation = 0;
  std::uint64_t word = 0;  // parity: its share of the code of the row's generations (generations.hpp)
  bool operator==(const Entry &) const = default;
};
inline constexpr Entry kLostEntry{0, kUnknown, 0};

struct Page {
  std::uint64_t checksum = 0;  // of the rest, and of its place
  std::uint64_t sequence = 0;  // of the last transaction that changed it
  Entry entries[kEntriesPerPage];
};
static_assert(sizeof(Page) == kBlockBytes);

// Seeds checksums with the volume, so that pages of another volume are not accepted.
struct Seed {
  explicit Seed(const VolumeId &id);
  std::uint64_t block(std::uint32_t member, std::uint64_t number, std::uint64_t generation,
                      const std::byte *payload) const;
  std::uint64_t page(std::uint32_t member, std::uint64_t number, const Page &page) const;

 private:
  std::uint64_t id_;
};

// Sets the checksum.
void seal_page(const Seed &seed, std::uint32_t member, std::uint64_t number, Page &page);
// Whether it is the page that was sealed for this place. If not, `page` has only unknown entries afterwards.
bool check_page(const Seed &seed, std::uint32_t member, std::uint64_t number, Page &page);
// A page of equal entries.
Page page_of(const Entry &entry, std::uint64_t sequence);

}  // namespace tandem::volume
