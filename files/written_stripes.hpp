// SPDX-License-Identifier: Apache-2.0
// The written stripes of a set, and the digest of their data payloads' hashes. Ranges come in any order. The hashes of
// a range are kept until those of all earlier stripes are known.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "files/format.hpp"

namespace tandem::files {

class WrittenStripes {
 public:
  // Any thread. Takes stripes first .. first + count - 1 for a write that begins. Throws INVALID_ARGUMENT if one of
  // them is outside the set, or is taken.
  void take(std::uint64_t first, std::uint64_t count, std::uint64_t stripe_count);
  void give_back(std::uint64_t first);  // of a range that was taken but not written
  // The range that was taken at `first` is written. hashes: of its data payloads; none if the digest is not needed.
  void add(std::uint64_t first, std::vector<Hash128> hashes);

  // Takes and adds stripes with hashes from elsewhere, kHashBytes for each data block. Any thread. Throws
  // INVALID_ARGUMENT as take(), and if these are too few or too many; nothing is changed then.
  void add_told(const SetHeader &header, std::uint64_t first, std::uint64_t count, std::span<const std::byte> hashes);

  // Throws INVALID_ARGUMENT with the number of missing stripes and the first one.
  void check_complete(std::uint64_t stripe_count) const;
  Hash128 digest(std::uint64_t content_bytes) const;

 private:
  struct Range {
    std::uint64_t end;
    bool written = false;
    std::vector<Hash128> hashes{};
  };

  mutable std::mutex mutex_;          // what follows
  std::uint64_t digested_count_ = 0;  // stripes at the front that are written and in the digest
  ContentDigest digest_;
  std::map<std::uint64_t, Range> ranges_;  // after them, by first stripe
};

// Throws DAMAGED unless the decoded content has the set's digest.
void check_digest(const SetHeader &header, const Hash128 &digest);

}  // namespace tandem::files
