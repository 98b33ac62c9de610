// Which stripes of a set are written, and the digest of their data payloads' hashes. Ranges come in any order: the
// hashes of a range are kept until those of all stripes before it are known.
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
  // Any thread. Takes stripes first .. first + count - 1 for a write that begins. Throws INVALID_ARGUMENT where one of
  // them is not of the set, or is taken.
  void take(std::uint64_t first, std::uint64_t count, std::uint64_t stripe_count);
  void give_back(std::uint64_t first);  // of a range that was taken, and was not written
  // The range that was taken at `first` is written. hashes: of its data payloads, or none where nobody asks for the
  // digest.
  void add(std::uint64_t first, std::vector<Hash128> hashes);

  // Takes and adds stripes whose hashes come from elsewhere, kHashBytes for each data block. Any thread. Throws
  // INVALID_ARGUMENT as take(), and where these are too few or too many; nothing is changed then.
  void add_told(const SetHeader &header, std::uint64_t first, std::uint64_t count, std::span<const std::byte> hashes);

  // Throws INVALID_ARGUMENT, and says how many are missing and which is the first.
  void check_complete(std::uint64_t stripe_count) const;
  Hash128 digest(std::uint64_t content_bytes) const;

 private:
  struct Range {
    std::uint64_t end;
    bool written = false;
    std::vector<Hash128> hashes{};
  };

  mutable std::mutex mutex_;          // what follows
  std::uint64_t digested_count_ = 0;  // stripes at the front: they are written and in the digest
  ContentDigest digest_;
  std::map<std::uint64_t, Range> ranges_;  // behind them, by first stripe
};

// Throws DAMAGED unless the decoded content has the set's digest.
void check_digest(const SetHeader &header, const Hash128 &digest);

}  // namespace tandem::files
