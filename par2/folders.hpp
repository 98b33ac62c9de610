// SPDX-License-Identifier: Apache-2.0
// What sync and scrub have in common: the folders of a tree, what a set says about its files, the list of all sets, and
// events.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder.hpp"
#include "par2/calls.hpp"
#include "par2/packet_files.hpp"

namespace tandem::par2 {

constexpr const char *kSetName = ".tandem.par2", *kMoreName = ".tandem-more.par2", *kListName = ".tandem.par2-sets";
constexpr const char *kNewName = ".tandem.new";  // while a set is made

bool is_of_new_set(const std::string &name);

using Files = std::map<std::string, struct stat>;  // by name
using Names = std::set<std::string>;

// A file beside what the set says about it: newer; not newer, but of another size, or older than when sync made the
// set; neither.
enum class Look { same, newer, other };
// set_time: the record, if the set does not keep the times of files.
Look look_at(const File &file, const timespec &set_time, const struct stat &now) noexcept;

// Whether recovery slices are gone that the set was made with. False if it does not keep their number.
bool lacks_recovery_slices(const Set &set) noexcept;

tandem_par2_event event_of(std::int32_t what, const std::string &path, std::int32_t severity = TANDEM_PAR2_FINE);

class Folders {
 public:
  // Throws if the root cannot be opened.
  Folders(const tandem_par2_tree_options &options);

  // Returns whether the callback wants to leave this set out. Throws if it cancels.
  bool report(tandem_par2_event event, const std::string &message = {});
  std::int32_t severity() const noexcept { return severity_; }

  // The root first. Symbolic links are not followed. An event names what cannot be listed.
  std::vector<std::string> all();
  // Without the sets of sync, its list, temporaries of create and repair, and what is excluded.
  Files files_in(const base::Folder &folder) const;
  bool is_excluded(const std::string &path) const;
  std::string relative(const std::string &path) const;  // to the root
  // Whether an accepted path names it, or a folder around it.
  bool is_accepted(const std::string &path, bool or_around) const;
  void note_accepted(const std::string &path);  // that it had an effect
  base::LockWait lock_wait() const;

  // 0: it is a file for a set. Else errno, or -1: packets.
  static int reason_to_leave_out(const base::Folder &folder, const std::string &name);
  tandem_par2_verify_options verify_options(const std::string &set, std::int32_t scope) const;

  // Relative paths of sets. Empty: there is no list, or it cannot be read.
  const std::optional<Names> &list() const noexcept { return list_; }
  void set_is_there(const std::string &path, bool was_there = true) {
    const std::string name = relative(path);
    found_below_ = found_below_ || (was_there && name.find('/') != std::string::npos);
    there_.insert(name);
  }
  void set_is_removed(const std::string &path) { removed_.insert(relative(path)); }
  // When all sets had their turn: an event for each other set of the list that is not there, unless it is accepted, and
  // for each accepted path without effect.
  // writes: the list.
  void finish_list(bool writes);

  static std::int32_t severity_of(const Error &error) {
    const bool is_lost = error.status() == TANDEM_ERROR_DAMAGED || error.status() == TANDEM_ERROR_NOT_RECOVERABLE;
    return is_lost ? TANDEM_PAR2_LOST : TANDEM_PAR2_UNREAD;
  }
  // Runs `body` for a set; a failure becomes an event.
  template <class Body>
  void guard(const std::string &set, const Body &body) {
    try {
      body();
    } catch (const Error &error) {
      if (error.status() == TANDEM_ERROR_CANCELLED || error.status() == TANDEM_ERROR_OUT_OF_MEMORY) throw;
      report(event_of(TANDEM_PAR2_SET_FAILED, set, severity_of(error)), error.what());
    }
  }

 private:
  std::optional<Names> read_list(std::string *problem_out) const;
  void write_list(const Names &sets);

  const tandem_par2_tree_options &options_;
  std::string root_;
  struct stat root_status_;
  std::vector<std::string> excluded_;
  std::map<std::string, bool> accepted_;  // relative paths, and whether that had an effect
  std::optional<Names> list_;
  Names there_, removed_;
  bool found_below_ = false;  // a set of a folder below the root, as an earlier sync of the root makes it
  std::int32_t severity_ = TANDEM_PAR2_FINE;
};

}  // namespace tandem::par2
