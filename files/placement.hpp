// SPDX-License-Identifier: Apache-2.0
// Where the file of a missing shard belongs, according to the other files of its set.
#pragma once

#include <string>
#include <vector>

#include "files/search.hpp"

namespace tandem::files {

struct Place {
  std::string folder, name;
};

struct Places {
  std::vector<Place> of;  // these shards, in order
  std::string note;       // set if the shards cannot return to the folders that encode used; else empty
};

// `given`: folders to use in turn, as encode does. Empty: those that encode used, as far as the search knows them.
// `replacements`: folders that may stand for lost ones, the first ones first; empty: those of the search.
// may_replace: the name may be that of a file outside the set. Otherwise no file has that name, except the shard
// itself, if it was written after the search. Nor will a file of an unfinished set get it.
Places places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                  const std::vector<std::string> &given, const std::vector<std::string> &replacements,
                  bool may_replace);

}  // namespace tandem::files
