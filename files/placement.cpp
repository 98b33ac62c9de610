#include "files/placement.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "files/commit.hpp"

namespace tandem::files {
namespace {

// The first part of "NAME.003.tandem" that most files have, where the number is that of the shard.
std::string common_name(const FoundSet &set) {
  std::map<std::string, std::size_t> votes;
  for (const ShardFile &file : set.files)
    if (const auto parts = parse_shard_file_name(name_of(file.path)); parts && parts->second == file.index)
      ++votes[parts->first];
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
  return most != votes.end() ? most->first : hexadecimal(set.header.set_id);
}

constexpr std::size_t kNoFolder = SIZE_MAX;

// The smallest number of folders so that shard i lies in folder i % number, each remainder in a folder of its own; what
// folder a remainder has, where a file tells. Empty where there is no such number.
std::vector<std::size_t> folders_in_turn(const FoundSet &set) {
  for (std::size_t count = 1; count <= set.header.shard_count(); ++count) {
    std::vector<std::size_t> folders(count, kNoFolder);
    std::set<std::size_t> taken;
    bool fits = true;
    for (const ShardFile &file : set.files) {
      std::size_t &folder = folders[file.index % count];
      if (folder == kNoFolder) {
        folder = file.folder;
        fits = taken.insert(file.folder).second;
      }
      fits = fits && folder == file.folder;
      if (!fits) break;
    }
    if (fits) return folders;
  }
  return {};
}

class Placement {
 public:
  Placement(const Search &search, const FoundSet &set)
      : in_turn_(folders_in_turn(set)), file_counts_(search.folders.size(), 0) {
    for (const ShardFile &file : set.files) ++file_counts_[file.folder];
  }

  // The folder whose turn it is, if known; else one that holds nothing of the set, or the least.
  std::size_t folder_for(std::uint32_t shard) {
    std::size_t unknown = kNoFolder;
    std::size_t &turn = in_turn_.empty() ? unknown : in_turn_[shard % in_turn_.size()];
    if (turn == kNoFolder)
      turn =
          static_cast<std::size_t>(std::min_element(file_counts_.begin(), file_counts_.end()) - file_counts_.begin());
    ++file_counts_[turn];
    return turn;
  }

 private:
  std::vector<std::size_t> in_turn_;
  std::vector<std::size_t> file_counts_;  // of the set, by folder
};

}  // namespace

std::vector<Place> places_for(const Search &search, const FoundSet &set, const std::vector<std::uint32_t> &shards,
                              const std::vector<std::string> &given, bool may_replace) {
  const std::string common = common_name(set), own = hexadecimal(set.header.set_id);
  std::set<std::pair<dev_t, ino_t>> of_this_set;
  for (const ShardFile &file : set.files) of_this_set.insert(file.identity);
  const auto is_free = [&](const Place &place) {
    struct stat status;
    // Where lstat is refused there may be something; whoever gives the name then fails, or does not replace it.
    return lstat((place.folder + "/" + place.name).c_str(), &status) != 0 ||
           (may_replace && !S_ISDIR(status.st_mode) && !of_this_set.contains({status.st_dev, status.st_ino}));
  };
  Placement placement(search, set);
  std::vector<Place> places;
  for (const std::uint32_t shard : shards) {
    Place place;
    place.folder = given.empty() ? search.folders[placement.folder_for(shard)] : given[shard % given.size()];
    place.name = shard_file_name(common, shard);
    for (unsigned number = 0; !is_free(place); ++number)
      place.name = shard_file_name(number == 0 ? own : fmt::format("{}-{}", own, number), shard);
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace tandem::files
