// SPDX-License-Identifier: Apache-2.0
// Which files of a set are right, and where their slices are.
#pragma once

#include <string>
#include <vector>

#include "par2/search.hpp"
#include "par2/set.hpp"

namespace tandem::par2 {

enum class FileState { complete, renamed, damaged, missing };  // the order of par2.h

struct FileReport {
  FileState state = FileState::missing;
  std::uint64_t in_place = 0, found = 0;  // slices
  std::uint64_t bytes = 0;                // that the file has now
  std::string found_as;                   // renamed: a file with its whole content
};

struct Report {
  Set set;
  std::vector<FileReport> files;
  std::uint64_t found_slices = 0;
};

// folder: of the set's files. extra: files that are searched if something is missing.
Report verify(Set set, const std::string &folder, const std::vector<std::string> &extra, base::TaskPool &pool,
              const Progress &progress);

}  // namespace tandem::par2
