// Where the file of a missing shard belongs, as far as the other files of its set tell.
#pragma once

#include <string>
#include <vector>

#include "files/search.hpp"

namespace tandem::files {

struct Place {
  std::string folder, name;
};

// Places for these shards. `given`: folders to use in turn, as encode does; empty: the folders of the others.
// may_replace: the name may be that of a file that does not belong to the set; else nothing has that name.
std::vector<Place> places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                              const std::vector<std::string> &given, bool may_replace);

}  // namespace tandem::files
