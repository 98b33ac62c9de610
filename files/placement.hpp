// SPDX-License-Identifier: Apache-2.0
// Where the file of a missing shard belongs, according to the other files of its set.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "files/recoverable.hpp"
#include "files/search.hpp"

namespace tandem::files {

struct Place {
  std::string folder, name;
  bool replaces = false;  // a file outside the set, or of a set that cannot be recovered
};

struct Places {
  std::vector<Place> of;  // these shards, in order
  std::string note;       // set if the shards cannot return to the folders that encode used; else empty
};

// `given`: folders to use in turn, as encode does. Empty: those that encode used, as far as the search knows them.
// `replacements`: folders that may stand for lost ones, the first ones first; empty: those of the search.
// may_replace: the name may be that of a file outside the set, unless another set of the search can be recovered and
// has that file. Otherwise no file has that name, except the shard itself, if it was written after the search.
Places places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                  const std::vector<std::string> &given, const std::vector<std::string> &replacements,
                  bool may_replace);

// The shards in each folder. The loss of a crowded folder alone loses the set, though the set would survive the loss of
// any folder if its shards were spread evenly over the folders that encode used. So a set that was made in one folder,
// or with more than m shards in each, has no crowded folder. Damage and missing shards do not count here.
class Layout {
 public:
  explicit Layout(const SetHeader &header) : header_(header) {}
  Layout(const Search &search, const FoundSet &set);

  void add(const std::string &folder, std::uint32_t shard) { folders_[folder].insert(shard); }
  void remove(const std::string &folder, std::uint32_t shard) { folders_[folder].erase(shard); }
  std::size_t count(const std::string &folder) const;
  std::map<std::string, std::set<std::uint32_t>> alone() const;  // by folder: shards that lie in no other
  std::uint32_t even_count() const;                              // of shards in a folder, if they were spread evenly
  // Sentences. all: also where an even spread would not help.
  std::vector<std::string> crowded(tandem_context *context, bool all = false) const;

 private:
  std::uint32_t spread_count() const;

  SetHeader header_;
  std::map<std::string, std::set<std::uint32_t>> folders_;
};

// Folders that may get shards of a set; `given` and `replacements` as above.
std::vector<std::string> folders_to_fill(const Search &search, const FoundSet &set,
                                         const std::vector<std::string> &given,
                                         const std::vector<std::string> &replacements);

}  // namespace tandem::files
