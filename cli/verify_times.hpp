// SPDX-License-Identifier: Apache-2.0
// When `verify --oldest` and `par2 scrub --oldest` last began to read each set. A file of the user's state folder has a
// row for each: ID or escaped path, tab, seconds since 1970.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/folder.hpp"
#include "cli/commands.hpp"

namespace tandem::cli {

class VerifyTimes {
 public:
  // The folder: STATE_DIRECTORY (systemd), else tandem/ in XDG_STATE_HOME or ~/.local/state. Throws without one, or if
  // the file cannot be read and written.
  VerifyTimes();

  struct Set {
    std::string key;  // without spaces and control characters
    std::uint64_t bytes;
  };
  // Keys of the sets that were never read, or not for the longest time: as many as have this part of the bytes, at
  // least one.
  std::set<std::string> oldest(const std::vector<Set> &sets, double part) const;
  // Adds the row to the file as it now is. If that fails, it prints a note.
  void set_now(const std::string &key);

 private:
  void keep(const std::string &key);  // "": only reads and writes

  std::shared_ptr<base::Folder> folder_;
  std::map<std::string, std::int64_t> times_;
};

// --rate, and --oldest if there is a place for it.
void add_part_flags(CLI::App &command, std::uint64_t &rate_bytes_per_second, double *oldest_part);

}  // namespace tandem::cli
