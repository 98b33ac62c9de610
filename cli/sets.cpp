// SPDX-License-Identifier: Apache-2.0
#include "cli/sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/finding.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// The content of a folder.
struct Listing {
  std::vector<fs::path> folders;  // in order
  bool has_files = false;
};

Listing list(const fs::path &folder, std::error_code &error) {
  Listing listing;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored))
      listing.folders.push_back(entry->path());
    else
      listing.has_files = true;
  }
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

// Prints a note and returns nothing if the folder cannot be read.
std::optional<Listing> list_or_note(const fs::path &folder, Places &places) {
  std::error_code error;
  Listing listing = list(folder, error);
  if (!error) return listing;
  complain(fmt::format("note: cannot read the folder {}: {}", folder.string(), error.message()));
  places.all_read = false;
  return std::nullopt;
}

void add_folders_below(const fs::path &folder, Places &places) {
  std::vector<fs::path> waiting{folder};
  while (!waiting.empty()) {
    const fs::path here = std::move(waiting.back());
    waiting.pop_back();
    const std::optional<Listing> listing = list_or_note(here, places);
    if (!listing) continue;
    places.folders.push_back(here.string());
    if (listing->has_files || listing->folders.empty()) places.paths.push_back(here.string());
    for (auto below = listing->folders.rbegin(); below != listing->folders.rend(); ++below) {
      std::error_code ignored;
      if (!fs::is_symlink(*below, ignored)) waiting.push_back(*below);
    }
  }
}

std::string folder_of(const std::string &path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Names and folders of the files of a set.
struct Layout {
  std::string name;
  bool has_one_name = true;  // of all its files
  std::set<std::string> folders;
  std::set<std::uint32_t> indices;
};

Layout layout_of(const std::vector<tandem_files_shard> &shards) {
  Layout layout;
  std::map<std::string, std::size_t> votes;
  for (const tandem_files_shard &shard : shards) {
    const auto parts = parse_shard_name(shard.path);
    if (parts) ++votes[parts->first];
    layout.has_one_name = layout.has_one_name && parts && votes.size() == 1;
    layout.folders.insert(folder_of(shard.path));
    layout.indices.insert(shard.index);
  }
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
  if (most != votes.end()) layout.name = most->first;
  return layout;
}

ChosenSet set_at(const SearchOwner &found, std::size_t index) {
  ChosenSet chosen;
  chosen.index = index;
  chosen.set = sized<tandem_files_set>();
  check(tandem_files_search_set(found.get(), index, &chosen.set));
  chosen.name = name_of_set(found, index);
  return chosen;
}

void add_sentences(const SearchOwner &found, const ChosenSet &other, std::vector<std::string> &sentences) {
  for (const tandem_files_shard &shard : shards_of(found, other.index))
    sentences.push_back(
        fmt::format("{} is of another set, {} (stale, or foreign)", shard.path, hexadecimal(other.set.set_id)));
}

}  // namespace

Places places_of(const SetFlags &flags) {
  Places places;
  places.recursive = flags.recursive;
  for (const std::string &path : flags.paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      places.paths.push_back(path);
      continue;
    }
    // Without a slash at its end: folder_of gives none.
    const fs::path folder = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
    places.named.push_back(folder.string());
    if (flags.recursive) {
      add_folders_below(folder, places);
      continue;
    }
    const Listing listing = list(folder, error);
    if (error || listing.has_files || listing.folders.empty()) {
      places.folders.push_back(folder.string());
      places.paths.push_back(folder.string());
    } else {
      for (const fs::path &below : listing.folders) {
        if (!list_or_note(below, places)) continue;
        places.folders.push_back(below.string());
        places.paths.push_back(below.string());
      }
    }
  }
  if (places.paths.empty()) throw Failure{kExitInputOutput, "none of the folders could be read"};
  return places;
}

int run_in(const Places &places, const std::function<int()> &body) {
  try {
    return body();
  } catch (Failure &failure) {
    if (!places.all_read) failure.exit_status = std::max<int>(failure.exit_status, kExitInputOutput);
    throw;
  }
}

std::string name_of_set(const SearchOwner &found, std::size_t set_index) {
  return layout_of(shards_of(found, set_index)).name;
}

std::string label_of(const ChosenSet &chosen) {
  const std::string id = hexadecimal(chosen.set.set_id);
  return chosen.name.empty() ? "set " + id : fmt::format("set {} ({})", id, printable(chosen.name));
}

std::vector<ChosenSet> chosen_sets(const SearchOwner &found, const SetFlags &flags) {
  const std::size_t count = tandem_files_search_set_count(found.get());
  if (count < 2 || !flags.set_id.empty()) return {only_set(found, flags)};
  std::vector<ChosenSet> sets;
  std::vector<Layout> layouts;
  std::vector<std::size_t> complete;
  for (std::size_t i = 0; i < count; ++i) {
    sets.push_back(set_at(found, i));
    layouts.push_back(layout_of(shards_of(found, i)));
    if (sets[i].set.shard_count >= sets[i].set.k) complete.push_back(i);
  }
  const auto is_left_over_of = [&](std::size_t old, std::size_t now) {
    const tandem_files_set &a = sets[old].set, &b = sets[now].set;
    if (!layouts[old].has_one_name || layouts[old].name != layouts[now].name) return false;
    const std::vector<tandem_files_shard> shards = shards_of(found, old);
    return std::all_of(shards.begin(), shards.end(), [&](const tandem_files_shard &shard) {
      return layouts[now].folders.contains(folder_of(shard.path)) ||
             (a.k == b.k && a.m == b.m && !layouts[now].indices.contains(shard.index));
    });
  };
  std::vector<ChosenSet> chosen;
  for (const std::size_t i : complete) chosen.push_back(sets[i]);
  for (std::size_t i = 0; i < count; ++i) {
    if (sets[i].set.shard_count >= sets[i].set.k) continue;
    std::size_t owner = 0;
    while (owner < complete.size() && !is_left_over_of(i, complete[owner])) ++owner;
    if (owner < complete.size())
      add_sentences(found, sets[i], chosen[owner].others);
    else
      chosen.push_back(sets[i]);
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const ChosenSet &a, const ChosenSet &b) { return a.name < b.name; });
  return chosen;
}

ChosenSet only_set(const SearchOwner &found, const SetFlags &flags) {
  std::size_t index = 0;
  check(tandem_files_search_choose(found.get(), flags.set_id_prefix(), &index));
  ChosenSet chosen = set_at(found, index);
  for (std::size_t i = 0; i < tandem_files_search_set_count(found.get()); ++i)
    if (i != index) add_sentences(found, set_at(found, i), chosen.others);
  return chosen;
}

SearchesOfSets::SearchesOfSets(const SearchOwner &found, const Places &places) : places_(places) {
  for (std::size_t i = 0; i < tandem_files_search_set_count(found.get()); ++i) {
    const std::vector<tandem_files_shard> shards = shards_of(found, i);
    Layout layout = layout_of(shards);
    Member member{std::move(layout.name), {}, std::move(layout.folders), {}};
    for (const tandem_files_shard &shard : shards) {
      member.paths.emplace_back(shard.path);
      member.folder_of_shard.emplace(shard.index, folder_of(shard.path));
    }
    for (const std::string &folder : member.folders) used_[folder].push_back(i);
    sets_.push_back(std::move(member));
  }
}

SearchOwner SearchesOfSets::of(const ChosenSet &chosen) const {
  const Member &own = sets_[chosen.index];
  std::set<std::size_t> related;  // sets that share folders with this one, or are left over from an older one
  std::set<std::string> beside;   // folders that hold folders of this set
  for (const std::string &folder : own.folders) {
    const std::vector<std::size_t> &here = used_.at(folder);
    related.insert(here.begin(), here.end());
    beside.insert(folder_of(folder));
  }
  // The library fills folders in the order of `paths`. First come folders where a related set keeps a shard that
  // this set lacks. Then come folders without shard files.
  enum { kHasMissingShard, kUnused, kShared };
  std::vector<std::pair<int, std::string>> folders;
  for (const std::string &folder : places_.folders) {
    const bool is_named =
        !places_.recursive && std::find(places_.named.begin(), places_.named.end(), folder) != places_.named.end();
    if (own.folders.contains(folder) || !(is_named || beside.contains(folder_of(folder)))) continue;
    const auto used = used_.find(folder);
    if (used == used_.end()) {
      folders.emplace_back(kUnused, folder);
      continue;
    }
    int kind = -1;
    for (const std::size_t i : used->second) {
      const Member &other = sets_[i];
      if (!related.contains(i) && (other.name.empty() || other.name != own.name)) continue;
      if (kind < 0) kind = kShared;
      for (const auto &[shard, where] : other.folder_of_shard)
        if (where == folder && !own.folder_of_shard.contains(shard)) kind = kHasMissingShard;
    }
    if (kind >= 0) folders.emplace_back(kind, folder);
  }
  std::stable_sort(folders.begin(), folders.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<std::string> paths = own.paths;
  for (auto &[kind, folder] : folders) paths.push_back(std::move(folder));
  return search(paths, {.json = false, .quiet = true});
}

void print_sets(const std::string &command, nlohmann::ordered_json sets, nlohmann::ordered_json totals, int exit_status,
                bool all_read) {
  nlohmann::ordered_json object = {{"command", command}, {"exit_status", exit_status}, {"all_read", all_read}};
  if (sets.size() == 1) object.update(sets[0]);
  object["exit_status"] = exit_status;  // of the command, not of the set
  object["sets"] = std::move(sets);
  object["totals"] = std::move(totals);
  print_json(object);
}

struct EachSet::State {
  std::string command;
  OutputFlags flags;
  std::set<std::string> done;  // ids
  std::vector<int> exit_statuses;
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
};

EachSet::EachSet(std::string command, const OutputFlags &flags) : state_(std::make_unique<State>()) {
  state_->command = std::move(command);
  state_->flags = flags;
}

EachSet::~EachSet() = default;

void EachSet::run(const SearchOwner &found, const std::vector<ChosenSet> &sets, bool may_repeat,
                  const std::function<int(const ChosenSet &, const std::string &, nlohmann::ordered_json &)> &body) {
  for (const ChosenSet &chosen : sets) {
    const std::string id = hexadecimal(chosen.set.set_id);
    if (state_->done.contains(id)) continue;
    nlohmann::ordered_json object;
    int exit_status = kExitDone;
    try {
      exit_status = body(chosen,
                         fmt::format("{} {}/{}", state_->command, state_->done.size() + 1,
                                     std::max(sets.size(), state_->done.size() + 1)),
                         object);
    } catch (const Failure &failure) {
      if (caught_signal() != 0) throw;
      if (may_repeat && failure.exit_status == kExitInputOutput && tandem_files_search_check(found.get()) != TANDEM_OK)
        throw;
      exit_status = failure.exit_status;
      object = {{"command", state_->command}, {"set_id", id}, {"name", chosen.name}};
      object.update(failure_object(failure));
      complain(fmt::format("set {}: {}", id, failure.message));
    }
    state_->done.insert(id);
    state_->exit_statuses.push_back(exit_status);
    object["exit_status"] = exit_status;
    state_->objects.push_back(std::move(object));
  }
}

std::size_t EachSet::set_count() const { return state_->exit_statuses.size(); }

std::string EachSet::counts() const {
  const auto of = [&](int exit_status) {
    return std::count(state_->exit_statuses.begin(), state_->exit_statuses.end(), exit_status);
  };
  const auto all = static_cast<std::ptrdiff_t>(set_count());
  const std::ptrdiff_t intact = of(kExitDone), recoverable = of(kExitDamageFound), lost = of(kExitNotRecoverable);
  std::string text = fmt::format("{}: {} intact, {} recoverable, {} not recoverable", plural(set_count(), "set"),
                                 intact, recoverable, lost);
  if (const std::ptrdiff_t failed = all - intact - recoverable - lost; failed != 0)
    text += fmt::format(", {} failed", failed);
  return text;
}

int EachSet::finish(const Places &places, nlohmann::ordered_json totals) {
  int worst = places.all_read ? kExitDone : kExitInputOutput;
  for (const int each : state_->exit_statuses) worst = std::max(worst, each);
  if (state_->flags.json)
    print_sets(state_->command, std::move(state_->objects), std::move(totals), worst, places.all_read);
  return worst;
}

}  // namespace tandem::cli
