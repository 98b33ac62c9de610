// Where the file of a missing shard belongs, as far as the other files of its set tell.
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
  std::string note;       // says so where the shards cannot go back to folders as encode used them; else empty
};

// `given`: folders to use in turn, as encode does; empty: those that encode used, as far as the search knows them.
// may_replace: the name may be that of a file that does not belong to the set. Else nothing has that name, unless it is
// the very shard, which came there after the search.
Places places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                  const std::vector<std::string> &given, bool may_replace);

}  // namespace tandem::files
