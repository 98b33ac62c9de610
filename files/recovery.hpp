// SPDX-License-Identifier: Apache-2.0
// Handles the remains of dead runs in folders: shows folders as if they were cleaned up, and cleans them up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/pending_file.hpp"
#include "files/format.hpp"

namespace tandem::files {

struct Recovered {
  std::uint32_t finished_set_count = 0;  // committed: the files got their names
  std::uint32_t removed_set_count = 0;   // never complete: the temporaries are gone
  std::uint32_t removed_file_count = 0;  // other temporaries
  std::uint32_t left_count = 0;          // sets and files that stay unchanged; see notes
  std::vector<std::string> notes;        // a sentence for each of these
  std::vector<SetId> would_finish;       // dry_run: sets without any unfinished remains
};

// Finishes sets that count, and removes those that do not, as far as this process may. Files of a live writer are left
// alone. The caller has locked the folders. dry_run: reports what it would do and changes nothing.
Recovered recover(const Folders &folders, bool dry_run);

// The same for folders, and the folders of files, by their paths. Holds and locks only folders with remains, so there
// may be more folders than open files. If another process keeps one locked, nothing is done, and a note says so.
Recovered recover(const std::vector<std::string> &paths, bool dry_run, const LockWait &wait);

// Throws IO if a folder holds a record of a set of this name that counts, or may count, or a record that cannot be
// read: finishing that set later would replace a newer one. With `force`, unfinished sets are returned instead, by
// folder, if their lead is in none of the folders and their writer is known to be dead. The newer set may then replace
// them. Call it after recover(), under the same lock.
std::vector<std::vector<SetId>> refuse_unfinished(const Folders &folders, const std::string &set_name,
                                                  const std::vector<SetId> &except, bool force);

// What a reader must know about these folders: names to skip, with the reason. They are records, unfinished, or about
// to be replaced. Temporaries of a set that counts are ordinary shard files. Reason "" is not worth a note.
using Hidden = std::map<std::string, std::string>;
std::vector<Hidden> hidden_names(const Folders &folders);

}  // namespace tandem::files
