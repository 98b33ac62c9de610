// SPDX-License-Identifier: Apache-2.0
// The stripes of a set that a writer's calls have written, and the digest of their data payloads' hashes. Ranges come
// in any order. The hashes of a range are kept until those of all earlier stripes are known. In a team, process 0 makes
// the digest, and the others keep their hashes for it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "files/format.hpp"
#include "files/team.hpp"

namespace tandem::files {

class WrittenStripes {
 public:
  explicit WrittenStripes(bool leads) : leads_(leads) {}

  // Any thread. Takes stripes first .. first + count - 1 for a write that begins. Throws INVALID_ARGUMENT if one of
  // them is outside the set, or is taken.
  void take(std::uint64_t first, std::uint64_t count, std::uint64_t stripe_count);
  void give_back(std::uint64_t first);  // of a range that was taken but not written
  // The range that was taken at `first` is written. hashes: of its data payloads.
  void add(std::uint64_t first, std::vector<Hash128> hashes);

  // Called by all processes of the team: process 0 gets the stripes of the others. Throws INVALID_ARGUMENT as take().
  void hand_over(const Team &team, std::uint64_t stripe_count);

  // Throws INVALID_ARGUMENT with the number of missing stripes and the first one.
  void check_complete(std::uint64_t stripe_count) const;
  Hash128 digest(std::uint64_t content_bytes) const;

 private:
  struct Range {
    std::uint64_t end;
    bool written = false, is_handed_over = false;
    std::vector<Hash128> hashes{};
  };

  const bool leads_;
  mutable std::mutex mutex_;          // what follows
  std::uint64_t digested_count_ = 0;  // stripes at the front that are written and in the digest
  ContentDigest digest_;
  std::map<std::uint64_t, Range> ranges_;  // after them, by first stripe
};

}  // namespace tandem::files
