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
  std::ranges::sort(listing.folders);
  return listing;
}

// Prints a note and returns nothing if the folder cannot be read.
std::optional<Listing> list_or_note(const fs::path &folder, Places &places) {
  std::error_code error;
  Listing listing = list(folder, error);
  if (!error) return listing;
  complain("note: cannot read the folder ", folder.string(), ": ", error.message());
  places.folders_read = false;
  places.closed.push_back(folder.string());
  return std::nullopt;
}

void add_folders_below(const fs::path &folder, Places &places, const std::function<bool(const std::string &)> &wants) {
  std::vector<fs::path> waiting{folder};
  while (!waiting.empty()) {
    const fs::path here = std::move(waiting.back());
    waiting.pop_back();
    const std::optional<Listing> listing = list_or_note(here, places);
    if (!listing) continue;
    places.folders.push_back(here.string());
    places.paths.push_back(here.string());
    for (auto below = listing->folders.rbegin(); below != listing->folders.rend(); ++below) {
      std::error_code ignored;
      if (!fs::is_symlink(*below, ignored) && (!wants || wants(below->string()))) waiting.push_back(*below);
    }
  }
}

std::string folder_of(const std::string &path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Layout layout_of(const std::vector<tandem_files_shard> &shards) {
  Layout layout;
  std::map<std::string, std::size_t> votes;
  for (const tandem_files_shard &shard : shards) {
    const auto parts = parse_shard_name(shard.path);
    if (parts) ++votes[parts->first];
    layout.folders.insert(folder_of(shard.path));
    layout.folder_of_shard.emplace(shard.index, folder_of(shard.path));
  }
  const auto most = std::ranges::max_element(votes, [](const auto &a, const auto &b) { return a.second < b.second; });
  if (most != votes.end()) layout.name = most->first;
  return layout;
}

ChosenSet set_at(const SearchOwner &found, std::size_t index) {
  ChosenSet chosen;
  chosen.index = index;
  chosen.set = sized<tandem_files_set>();
  check(tandem_files_search_set(found.get(), index, &chosen.set));
  chosen.name = chosen.set.name;
  return chosen;
}

bool is_replaced(const ChosenSet &chosen) { return std::ranges::any_of(chosen.set.replaced_by, std::identity()); }

// In the order of the search.
std::vector<ChosenSet> all_sets(const SearchOwner &found) {
  std::vector<ChosenSet> sets;
  for (std::size_t i = 0; i < tandem_files_search_set_count(found.get()); ++i) sets.push_back(set_at(found, i));
  return sets;
}

void add_sentences(const SearchOwner &found, const ChosenSet &other, std::vector<std::string> &sentences) {
  for (const tandem_files_shard &shard : shards_of(found, other.index))
    sentences.push_back(
        fmt::format("{} is of another set, {} (stale, or foreign)", shard.path, hexadecimal(other.set.set_id)));
}

}  // namespace

Places places_of(const SetFlags &flags, const std::function<bool(const std::string &)> &wants) {
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
      add_folders_below(folder, places, wants);
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
  if (places.paths.empty()) fail(kExitInputOutput, "none of the folders could be read");
  return places;
}

bool has_folders(const std::string &path) {
  std::error_code error;
  return !list(path, error).folders.empty();
}

std::string par2_scrub_command(const std::string &folder, bool repair) {
  return fmt::format("{} par2 scrub {}{}", command_name(), repair ? "--repair " : "", word_for_shell(folder));
}

std::string par2_command(const std::string &folder, bool repair) {
  std::vector<fs::path> sets;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() == ".tandem.par2")  // of sync
      return par2_scrub_command(folder, repair);
    if (entry->path().extension() == ".par2") sets.push_back(entry->path());
  }
  if (sets.empty()) return "";
  std::ranges::sort(sets, {}, [](const fs::path &each) {
    return std::pair(each.native().find(".vol") != std::string::npos, each.native());
  });
  const bool several = sets.size() > 1 && sets[1].native().find(".vol") == std::string::npos;
  if (several) return par2_scrub_command(folder, repair);
  return fmt::format("{} par2 {} {}", command_name(), repair ? "repair" : "verify", word_for_shell(sets[0].native()));
}

void note_unread(const SearchOwner &found, Places &places) {
  constexpr std::size_t kMostNotes = 10;
  std::size_t count = 0;
  for (; const char *why = tandem_files_search_left_out(found.get(), TANDEM_FILES_UNREAD, count); ++count) {
    if (count >= kMostNotes) continue;
    const auto is_noted = [&](const std::string &folder) {
      return std::string_view(why).find(" " + folder + ":") != folder.npos;
    };
    if (std::ranges::none_of(places.closed, is_noted)) complain("note: ", why);
  }
  if (count > kMostNotes) complain("note: ", plural(count - kMostNotes, "file"), " more cannot be read");
  places.files_read = count == 0;
}

int run_in(const Places &places, const std::function<int()> &body) {
  try {
    return body();
  } catch (Failure &failure) {
    if (!places.all_read()) failure.exit_status = std::max<int>(failure.exit_status, kExitInputOutput);
    throw;
  }
}

std::string label_of(const ChosenSet &chosen) {
  const std::string id = hexadecimal(chosen.set.set_id);
  return chosen.name.empty() ? "set " + id : fmt::format("set {} ({})", id, printable(chosen.name));
}

std::string list_of(const std::vector<ChosenSet> &sets) {
  constexpr std::size_t kMostListed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(sets.size(), kMostListed); ++i) {
    const auto &[index, set, name, others] = sets[i];
    text += fmt::format("{}{} ({}{}{} of {} shards)", i == 0 ? "" : ", ", hexadecimal(set.set_id), name,
                        name.empty() ? "" : ", ", set.shard_count, set.k + set.m);
  }
  return sets.size() > kMostListed ? text + ", ..." : text;
}

std::vector<ChosenSet> named_sets(const SearchOwner &found, const SetFlags &flags) {
  std::vector<ChosenSet> sets = all_sets(found);
  if (sets.empty() || !flags.set_id.empty()) {
    std::size_t index = 0;
    check(tandem_files_search_choose(found.get(), flags.set_id_prefix(), nullptr, &index));
    return {sets[index]};
  }
  if (flags.name.empty()) return sets;
  std::vector<ChosenSet> named;
  std::ranges::copy_if(sets, std::back_inserter(named), [&](const ChosenSet &each) { return each.name == flags.name; });
  if (named.empty()) fail(kExitWrongUsage, "no set is called ", flags.name, "; there are: ", list_of(sets));
  return named;
}

std::vector<ChosenSet> chosen_sets(const SearchOwner &found, const SetFlags &flags) {
  if (tandem_files_search_set_count(found.get()) < 2 || !flags.set_id.empty()) return {only_set(found, flags)};
  std::vector<ChosenSet> sets = named_sets(found, flags);
  for (const ChosenSet &old : sets)
    for (ChosenSet &each : sets)
      if (std::ranges::equal(old.set.replaced_by, each.set.set_id)) add_sentences(found, old, each.others);
  std::erase_if(sets, is_replaced);
  std::ranges::stable_sort(sets, {}, &ChosenSet::name);
  return sets;
}

ChosenSet only_set(const SearchOwner &found, const SetFlags &flags) {
  std::size_t index = 0;
  check(tandem_files_search_choose(found.get(), flags.set_id_prefix(),
                                   flags.name.empty() ? nullptr : flags.name.c_str(), &index));
  ChosenSet chosen = set_at(found, index);
  for (std::size_t i = 0; i < tandem_files_search_set_count(found.get()); ++i)
    if (i != index) add_sentences(found, set_at(found, i), chosen.others);
  return chosen;
}

FoldersOfSets::FoldersOfSets(const SearchOwner &found, const Places &places) : places_(places) {
  for (std::size_t i = 0; i < tandem_files_search_set_count(found.get()); ++i) {
    sets_.push_back(layout_of(shards_of(found, i)));
    for (const std::string &folder : sets_[i].folders) used_[folder].push_back(i);
  }
}

std::vector<std::string> FoldersOfSets::of(const ChosenSet &chosen) const {
  const Layout &own = sets_[chosen.index];
  std::vector<std::string> all(own.folders.begin(), own.folders.end());
  std::vector<bool> related(sets_.size(), false);  // sets that share folders with this one
  std::set<std::string> beside;                    // folders that hold folders of this set
  for (const std::string &folder : own.folders) {
    for (const std::size_t i : used_.at(folder)) related[i] = true;
    beside.insert(folder_of(folder));
  }
  // The library fills folders in this order, and moves shards of crowded folders there. First come folders where a
  // related set, or one of the same name, keeps a shard that this set lacks. Then come folders without shard files.
  enum { kHasMissingShard, kUnused, kShared };
  std::vector<std::pair<int, std::string>> folders;
  for (const std::string &folder : places_.folders) {
    const bool is_named = !places_.recursive && std::ranges::find(places_.named, folder) != places_.named.end();
    if (own.folders.contains(folder) || !(is_named || beside.contains(folder_of(folder)))) continue;
    const auto used = used_.find(folder);
    if (used == used_.end()) {
      folders.emplace_back(kUnused, folder);
      continue;
    }
    int kind = -1;
    for (const std::size_t i : used->second) {
      const Layout &other = sets_[i];
      if (!related[i] && (other.name.empty() || other.name != own.name)) continue;
      if (kind < 0) kind = kShared;
      for (const auto &[shard, where] : other.folder_of_shard)
        if (where == folder && !own.folder_of_shard.contains(shard)) kind = kHasMissingShard;
    }
    if (kind >= 0) folders.emplace_back(kind, folder);
  }
  std::ranges::stable_sort(folders, [](const auto &a, const auto &b) { return a.first < b.first; });
  for (auto &[kind, folder] : folders) all.push_back(std::move(folder));
  return all;
}

void print_sets(const std::string &command, Json sets, Json totals, int exit_status, bool all_read, const Json &more) {
  Json object = {{"command", command}, {"exit_status", exit_status}, {"all_read", all_read}};
  if (sets.size() == 1) object.update(sets[0]);
  object["exit_status"] = exit_status;  // of the command, not of the set
  object.update(more);
  object["sets"] = std::move(sets);
  object["totals"] = std::move(totals);
  print_json(object);
}

struct EachSet::State {
  std::string command;
  OutputFlags flags;
  std::set<std::string> done;  // ids
  std::vector<int> exit_statuses;
  std::ptrdiff_t crowded_count = 0;
  Json objects = Json::array();
};

EachSet::EachSet(std::string command, const OutputFlags &flags) : state_(std::make_unique<State>()) {
  state_->command = std::move(command);
  state_->flags = flags;
}

EachSet::~EachSet() = default;

void EachSet::run(const SearchOwner &found, const std::vector<ChosenSet> &sets, bool may_repeat,
                  const std::function<int(const ChosenSet &, const std::string &, Json &)> &body) {
  const auto add = [&](const ChosenSet &chosen, int exit_status, Json object) {
    state_->done.insert(hexadecimal(chosen.set.set_id));
    state_->exit_statuses.push_back(exit_status);
    object["exit_status"] = exit_status;
    state_->objects.push_back(std::move(object));
  };
  const auto add_failed = [&](const ChosenSet &chosen, const Failure &failure) {
    const std::string id = hexadecimal(chosen.set.set_id);
    Json object = {{"command", state_->command}, {"set_id", id}, {"name", chosen.name}};
    object.update(failure_object(failure));
    complain("set ", id, ": ", failure.message);
    add(chosen, failure.exit_status, std::move(object));
  };
  // Failures that a change of the files may explain. They wait, so that the files are checked once, not for each set.
  std::vector<std::pair<const ChosenSet *, Failure>> unsure;
  for (const ChosenSet &chosen : sets) {
    if (state_->done.contains(hexadecimal(chosen.set.set_id))) continue;
    Json object;
    try {
      const std::size_t number = state_->done.size() + unsure.size() + 1;
      const int exit_status =
          body(chosen, fmt::format("{} {}/{}", state_->command, number, std::max(sets.size(), number)), object);
      add(chosen, exit_status, std::move(object));
    } catch (const Failure &failure) {
      if (caught_signal() != 0) throw;
      if (may_repeat && failure.exit_status == kExitInputOutput)
        unsure.emplace_back(&chosen, failure);
      else
        add_failed(chosen, failure);
    }
  }
  if (!unsure.empty() && tandem_files_search_check(found.get()) != TANDEM_OK) throw Failure(unsure.front().second);
  for (const auto &[chosen, failure] : unsure) add_failed(*chosen, failure);
}

std::size_t EachSet::set_count() const { return state_->exit_statuses.size(); }

void EachSet::add_crowded() { ++state_->crowded_count; }

std::string EachSet::counts() const {
  const auto of = [&](int exit_status) { return std::ranges::count(state_->exit_statuses, exit_status); };
  const auto all = static_cast<std::ptrdiff_t>(set_count());
  const std::ptrdiff_t intact = of(kExitDone), crowded = state_->crowded_count,
                       recoverable = of(kExitDamageFound) - crowded, lost = of(kExitNotRecoverable);
  std::string text = fmt::format("{}: {} intact, {} recoverable, {} not recoverable", plural(set_count(), "set"),
                                 intact, recoverable, lost);
  if (crowded != 0) text += fmt::format(", {} crowded", crowded);
  if (const std::ptrdiff_t failed = all - intact - recoverable - crowded - lost; failed != 0)
    text += fmt::format(", {} failed", failed);
  return text;
}

int EachSet::finish(const Places &places, Json totals) {
  int worst = places.all_read() ? kExitDone : kExitInputOutput;
  for (const int each : state_->exit_statuses) worst = std::max(worst, each);
  if (state_->flags.json)
    print_sets(state_->command, std::move(state_->objects), std::move(totals), worst, places.all_read(),
               Json::object());
  return worst;
}

}  // namespace tandem::cli
