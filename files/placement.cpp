// SPDX-License-Identifier: Apache-2.0
#include "files/placement.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "base/text.hpp"
#include "files/unfinished.hpp"

namespace tandem::files {
namespace {

// The first of those with the most votes.
auto most_voted(const auto &votes) {
  return std::ranges::max_element(votes, [](const auto &a, const auto &b) { return a.second < b.second; });
}

// The set's id, if the set has no name, or not all shards could have it.
std::string common_name(const FoundSet &set) {
  const std::string name = name_of_files(set);
  return is_set_name(name, set.header.shard_count()) ? name : hexadecimal(set.header.set_id);
}

std::size_t place_of(std::vector<std::size_t>::const_iterator element, const std::vector<std::size_t> &list) {
  return static_cast<std::size_t>(element - list.begin());
}

// Folders that may get shards, each once, and the place of each file's folder among them.
struct Usable {
  std::vector<std::string> folders;
  std::map<std::size_t, std::size_t> place_of;  // by place in Search::folders
};

Usable usable_folders(const Search &search, const FoundSet &set, const std::vector<std::string> &replacements) {
  Usable usable;
  ManyFolders folders;
  for (const ShardFile &file : set.files)
    if (!usable.place_of.contains(file.folder))
      usable.place_of[file.folder] =
          replacements.empty() ? file.folder : folders.add(search.folders[file.folder], FolderUse::enter);
  for (const std::string &path : replacements) folders.add(path, FolderUse::enter);
  for (const auto &folder : folders.list()) usable.folders.push_back(folder->path());
  if (replacements.empty()) usable.folders = search.folders;
  return usable;
}

// The places, in usable.folders, of the folders for these shards. Encode put shard i into folder i % folder_count. So
// a shard goes to the folder with most files of the same remainder. A remainder without files gets a folder that holds
// nothing of the set, because that folder was replaced.
std::vector<std::size_t> folders_in_turn(const Usable &usable, const FoundSet &set,
                                         const std::vector<std::uint32_t> &shards, std::string *note_out) {
  const std::uint32_t shard_count = set.header.shard_count();
  // If encode placed them in another way, each shard has its own remainder.
  const std::uint32_t turn_count = set.header.folder_count != 0 ? set.header.folder_count : shard_count;
  std::vector<std::size_t> file_counts(usable.folders.size(), 0);
  std::vector<std::map<std::size_t, std::size_t>> of_turn(turn_count);  // folder, files
  for (const ShardFile &file : set.files) {
    const std::size_t folder = usable.place_of.at(file.folder);
    ++file_counts[folder];
    ++of_turn[file.index % turn_count][folder];
  }
  std::vector<std::size_t> folders;
  std::size_t crowded_count = 0;
  for (const std::uint32_t shard : shards) {
    std::map<std::size_t, std::size_t> &here = of_turn[shard % turn_count];
    std::size_t folder;
    if (here.empty()) {
      folder = place_of(std::ranges::min_element(file_counts), file_counts);
      (file_counts[folder] == 0 ? here[folder] : crowded_count) += 1;
    } else {
      folder = most_voted(here)->first;
    }
    folders.push_back(folder);
    ++file_counts[folder];
  }
  if (crowded_count == 0) return folders;
  const std::size_t most = place_of(std::ranges::max_element(file_counts), file_counts);
  *note_out = base::text("the layout of the encode cannot be restored: ",
                         set.header.folder_count != 0 ? base::text("it used ", set.header.folder_count, " folders")
                                                      : "the headers do not say how it used its folders",
                         ", and ", usable.folders.size() == 1 ? "1 is" : base::text(usable.folders.size(), " are"),
                         " named. ", crowded_count, " missing shard", crowded_count == 1 ? " goes" : "s go",
                         " to folders with other shards; ", usable.folders[most], " then holds ", file_counts[most],
                         " of the ", shard_count, " shards");
  return folders;
}

// Files of other sets that can be recovered.
std::set<std::pair<dev_t, ino_t>> files_in_need(const Search &search, const FoundSet &set) {
  std::set<std::pair<dev_t, ino_t>> needed;
  for (const FoundSet &other : search.sets) {
    if (&other == &set || !has_enough_shards(other)) continue;
    for (const ShardFile &file : other.files) needed.insert(file.identity);
  }
  return needed;
}

// Another repair made it since the search. A second file of the shard is not wanted.
bool holds_shard(const Place &place, const FoundSet &set, std::uint32_t shard) {
  try {
    return is_shard_of(Folder(place.folder, FolderUse::enter), place.name, set.header.set_id, shard);
  } catch (const Error &) {
    return false;
  }
}

}  // namespace

Places places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                  const std::vector<std::string> &given, const std::vector<std::string> &replacements,
                  bool may_replace) {
  const std::string common = common_name(set), own = hexadecimal(set.header.set_id);
  std::set<std::pair<dev_t, ino_t>> kept;
  if (may_replace) kept = files_in_need(search, set);
  for (const ShardFile &file : set.files) kept.insert(file.identity);
  const auto is_free = [&](Place &place) {
    struct stat status;
    // If lstat is refused, there may be a file. The rename then fails, or does not replace it.
    if (lstat((place.folder + "/" + place.name).c_str(), &status) != 0) return true;
    place.replaces = may_replace && !S_ISDIR(status.st_mode) && !kept.contains({status.st_dev, status.st_ino});
    return place.replaces;
  };
  Places places;
  Usable usable;
  std::vector<std::size_t> folders;
  if (given.empty()) {
    usable = usable_folders(search, set, replacements);
    folders = folders_in_turn(usable, set, shards, &places.note);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::uint32_t shard = shards[i];
    Place place;
    place.folder = given.empty() ? usable.folders[folders[i]] : given[shard % given.size()];
    place.name = shard_file_name(common, shard);
    for (unsigned number = 0; !is_free(place) && !holds_shard(place, set, shard); ++number)
      place.name = shard_file_name(number == 0 ? own : base::text(own, "-", number), shard);
    places.of.push_back(std::move(place));
  }
  return places;
}

std::vector<std::string> folders_to_fill(const Search &search, const FoundSet &set,
                                         const std::vector<std::string> &given,
                                         const std::vector<std::string> &replacements) {
  return given.empty() ? usable_folders(search, set, replacements).folders : given;
}

Layout::Layout(const Search &search, const FoundSet &set) : Layout(set.header) {
  for (const ShardFile &file : set.files) add(search.folders[file.folder], file.index);
}

std::size_t Layout::count(const std::string &folder) const {
  const auto found = folders_.find(folder);
  return found != folders_.end() ? found->second.size() : 0;
}

std::map<std::string, std::set<std::uint32_t>> Layout::alone() const {
  std::vector<std::uint32_t> copies(header_.shard_count(), 0);
  for (const auto &[folder, shards] : folders_)
    for (const std::uint32_t shard : shards) ++copies[shard];
  auto lone = folders_;
  for (auto &[folder, shards] : lone) std::erase_if(shards, [&](std::uint32_t shard) { return copies[shard] > 1; });
  return lone;
}

// Of folders in an even spread. If encode used none in turn, those where the shards lie count. If one of these holds
// every shard, others have copies.
std::uint32_t Layout::spread_count() const {
  if (header_.folder_count != 0) return header_.folder_count;
  std::uint32_t count = 0;
  for (const auto &[folder, shards] : folders_) {
    if (shards.size() == header_.shard_count()) return 1;
    count += shards.empty() ? 0 : 1;
  }
  return count;
}

std::uint32_t Layout::even_count() const {
  return base::divide_up(header_.shard_count(), std::max(spread_count(), 1u));
}

std::vector<std::string> Layout::crowded(tandem_context *context, bool all) const {
  const std::uint32_t spread = spread_count();
  const auto lone = alone();
  // Every code with parity survives the loss of one shard.
  const bool is_one_each = std::ranges::all_of(lone, [](const auto &each) { return each.second.size() < 2; });
  if (header_.m == 0 || (spread < 2 && !all) || is_one_each) return {};
  const Recoverability recoverability(context, header_);
  const auto holds = [&](const auto &is_lost) {
    std::vector<std::uint8_t> present(header_.shard_count(), 1);
    for (std::uint32_t shard = 0; shard < present.size(); ++shard)
      if (is_lost(shard) && !header_.is_padding(shard)) present[shard] = 0;
    return recoverability.holds(present);
  };
  for (std::uint32_t folder = 0; folder < spread && !all; ++folder)
    if (!holds([&](std::uint32_t shard) { return shard % spread == folder; })) return {};
  std::vector<std::string> sentences;
  for (const auto &[folder, shards] : lone)
    if (!holds([&its = shards](std::uint32_t shard) { return its.contains(shard); }))
      sentences.push_back(base::text("folder ", folder, " holds ", count(folder), " shards of a ", header_.k, "+",
                                     header_.m, " set: its loss loses the set"));
  return sentences;
}

}  // namespace tandem::files
