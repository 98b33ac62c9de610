// SPDX-License-Identifier: Apache-2.0
// The sets that a command works on: where it searches, which sets it takes, and the result of several sets together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace tandem::cli {

// Where a command looks for shard files.
struct Places {
  std::vector<std::string> named;    // folders that the user named
  std::vector<std::string> paths;    // to search: these, or those that stand for them, and files
  std::vector<std::string> folders;  // of `paths`, and those between them; repair may use them as new disks
  std::vector<std::string> closed;   // folders that cannot be read; a search must know that shards may lie there
  bool recursive = false;
  bool folders_read = true, files_read = true;  // false: one below cannot be read; a note has named it
  bool all_read() const { return folders_read && files_read; }
  std::vector<std::string> all() const {
    std::vector<std::string> both = paths;
    both.insert(both.end(), closed.begin(), closed.end());
    return both;
  }
};
// With --recursive: all folders below the named ones; symbolic links are not followed. Without it, a named folder that
// holds folders but no file stands for these folders, as after `encode -o 'm/disk{i}'`.
// wants: whether to look into a folder below.
Places places_of(const SetFlags &flags, const std::function<bool(const std::string &folder)> &wants = {});
bool has_folders(const std::string &path);  // below it
// The command that checks, or repairs, the PAR2 sets of a folder; "": it has none.
std::string par2_command(const std::string &folder, bool repair);
// That of all sets below it.
std::string par2_scrub_command(const std::string &folder, bool repair);
// Prints a note for each file that could not be read, and sets places.files_read.
void note_unread(const SearchOwner &found, Places &places);
// Runs `body`. If a folder or file cannot be read, a Failure has exit status 3 or more: what was not found may lie
// there.
int run_in(const Places &places, const std::function<int()> &body);

struct ChosenSet {
  std::size_t index = 0;  // in the search
  tandem_files_set set{};
  std::string name;                 // of the set
  std::vector<std::string> others;  // sentences: files of other sets that were found beside it
};
// "set ID (NAME)", printable.
std::string label_of(const ChosenSet &chosen);

// "ID (NAME, 6 of 6 shards), ...", of the first sets.
std::string list_of(const std::vector<ChosenSet> &sets);

// All sets that --set or --name name, in the order of the search.
std::vector<ChosenSet> named_sets(const SearchOwner &found, const SetFlags &flags);
// The set that --set names, or the sets that --name names; else every set. Files of sets that another one has replaced
// are listed in its `others`.
std::vector<ChosenSet> chosen_sets(const SearchOwner &found, const SetFlags &flags);
// The one set that decode and the ranks of a job need: where there are several, the only one with enough shards.
ChosenSet only_set(const SearchOwner &found, const SetFlags &flags);

// Names and folders of the files of a set.
struct Layout {
  std::string name;
  std::set<std::string> folders;
  std::map<std::uint32_t, std::string> folder_of_shard;
};

// Folders where missing shards of one of several sets may go: those of the set, and folders that are named by the user
// or lie beside one of these. Such a folder holds no shard file, or files of a set that shares folders with this one.
class FoldersOfSets {
 public:
  FoldersOfSets(const SearchOwner &found, const Places &places);
  std::vector<std::string> of(const ChosenSet &chosen) const;

 private:
  const Places &places_;
  std::vector<Layout> sets_;                              // as found
  std::map<std::string, std::vector<std::size_t>> used_;  // by folder: sets that have files there
};

// Prints {"command", "exit_status", "all_read", "sets": [...], "totals"}. If there is one set, its keys also stand at
// the top. more: keys beside "all_read".
void print_sets(const std::string &command, Json sets, Json totals, int exit_status, bool all_read, const Json &more);

// Runs `body` on each set. It prints its own line, or fills in `object`. A Failure of one set is reported, and the
// other sets still have their turn. The exit status is the highest of the sets.
//   command   "verify"
class EachSet {
 public:
  EachSet(std::string command, const OutputFlags &flags);
  ~EachSet();
  EachSet(const EachSet &) = delete;
  EachSet &operator=(const EachSet &) = delete;

  // may_repeat: rethrows an error of input or output if the files have changed since the search. The next round skips
  // the sets that are done.
  void run(const SearchOwner &found, const std::vector<ChosenSet> &sets, bool may_repeat,
           const std::function<int(const ChosenSet &, const std::string &action, Json &object)> &body);
  std::size_t set_count() const;
  void add_crowded();  // the set of `body` is intact, and has a crowded folder
  // "50 sets: 48 intact, 1 recoverable, 1 not recoverable, 1 crowded, 0 failed"
  std::string counts() const;
  int finish(const Places &places, Json totals);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::cli
