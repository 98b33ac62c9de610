// SPDX-License-Identifier: Apache-2.0
#include "volume/page.hpp"

#include <algorithm>

namespace tandem::volume {

Seed::Seed(const VolumeId &id) : id_(hash64(id.data(), id.size())) {}

std::uint64_t Seed::block(std::uint32_t member, std::uint64_t number, std::uint64_t generation,
                          const std::byte *payload) const {
  const std::uint64_t place[] = {id_, member, number, generation};
  return hash64(payload, kBlockBytes, hash64(place, sizeof place));
}

std::uint64_t Seed::page(std::uint32_t member, std::uint64_t number, const Page &page) const {
  const std::uint64_t place[] = {id_, member, number, 0x7461626c65};  // "table": no block has this generation
  return hash64(&page.sequence, sizeof page - sizeof page.checksum, hash64(place, sizeof place));
}

void seal_page(const Seed &seed, std::uint32_t member, std::uint64_t number, Page &page) {
  page.checksum = seed.page(member, number, page);
}

bool check_page(const Seed &seed, std::uint32_t member, std::uint64_t number, Page &page) {
  if (page.checksum == seed.page(member, number, page)) return true;
  page = page_of(kLostEntry, 0);
  return false;
}

Page page_of(const Entry &entry, std::uint64_t sequence) {
  Page page;
  page.sequence = sequence;
  std::ranges::fill(page.entries, entry);
  return page;
}

}  // namespace tandem::volume
