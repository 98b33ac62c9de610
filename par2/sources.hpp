// SPDX-License-Identifier: Apache-2.0
// The files that a new set protects.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "par2/packets.hpp"

namespace tandem::par2 {

struct Source : Description {
  std::string path;
  struct stat status;
  std::uint64_t first_slice = 0;
};

// Files and what lies below folders, each once. Names are relative to `base`. is_left_out: of files inside folders.
// Throws if a path is no regular file or folder, or lies outside of base.
std::vector<Source> find_sources(const std::vector<std::string> &paths, const std::string &base,
                                 const std::function<bool(const std::string &path)> &is_left_out);

// The smallest multiple of 4 with which all files together have at most slice_count slices. Throws if there is none.
std::uint64_t least_slice_bytes(const std::vector<Source> &sources, std::uint64_t slice_count);

// A 2,000th of all bytes, but at least 4 KiB or as much as the largest file has: smaller slices would have more
// checksums than data. More if kMostSlices do not suffice.
std::uint64_t default_slice_bytes(const std::vector<Source> &sources);

// Throws if a file is not as it was when it was found.
void check_unchanged(const std::vector<Source> &sources);

}  // namespace tandem::par2
