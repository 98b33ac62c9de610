// SPDX-License-Identifier: Apache-2.0
// The lost bytes of a content: a list of ranges, at most as many as the owner allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::files {

class HoleMap {
 public:
  explicit HoleMap(std::size_t most) : most_(most) {}

  // Adds bytes first .. end - 1, which lie behind all that were added before. Beyond `most` holes every two neighbours
  // become one, with the bytes between them.
  void add(std::uint64_t first, std::uint64_t end) {
    byte_count_ += end - first;
    if (!holes_.empty() && holes_.back().second == first) {
      holes_.back().second = end;
      return;
    }
    holes_.emplace_back(first, end);
    if (holes_.size() <= most_) return;
    std::size_t count = 0;
    for (std::size_t i = 0; i < holes_.size(); i += 2)
      holes_[count++] = {holes_[i].first, holes_[i + 1 < holes_.size() ? i + 1 : i].second};
    holes_.resize(count);
  }

  bool empty() const { return holes_.empty(); }
  std::uint64_t byte_count() const { return byte_count_; }                                      // that were added
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> &holes() const { return holes_; }  // first, end

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes_;
  std::size_t most_;
  std::uint64_t byte_count_ = 0;
};

}  // namespace tandem::files
