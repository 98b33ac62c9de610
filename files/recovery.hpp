// What runs that died left in folders: seen as if it were cleaned up, and cleaned up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "files/folder.hpp"
#include "files/format.hpp"

namespace tandem::files {

struct Recovered {
  std::uint32_t finished_set_count = 0;  // committed: the files got their names
  std::uint32_t removed_set_count = 0;   // never complete: the temporaries are gone
  std::uint32_t removed_file_count = 0;  // other temporaries
  std::uint32_t left_count = 0;          // sets and files that stay as they are; see notes
  std::vector<std::string> notes;        // a sentence for each of these
  std::vector<SetId> would_finish;       // dry_run: of which nothing unfinished would be left
};

// Finishes what counts and removes what does not, as far as this process may; what is being written by a live one is
// left alone. The folders are locked by the caller. dry_run: says what it would do and changes nothing.
Recovered recover(const Folders &folders, bool dry_run);

// The same for folders, and the folders of files, by their paths; locks them.
// Where somebody else keeps one locked, nothing is done, and a note says so.
Recovered recover(const std::vector<std::string> &paths, bool dry_run, const LockWait &wait);

// Throws IO where a folder holds a record of a set of this name that counts, or may count, or one that cannot be read:
// whoever finished that set later would do so over a newer one. With `force` the sets whose lead is in none of the
// folders, and whose writer is known to be dead, are returned instead, by folder: they may be given up for the newer
// one. To be called after recover(), under the same lock.
std::vector<std::vector<SetId>> refuse_unfinished(const Folders &folders, const std::string &set_name,
                                                  const std::vector<SetId> &except, bool force);

// On some file systems, NFS for one, only a file that is open for writing can be locked.
Descriptor open_to_lock(const Folder &folder, const std::string &name);

// What a reader has to know of these folders: names not to be looked at, with the reason, because they are records,
// unfinished, or about to be replaced. Temporaries of a set that counts are shard files like others. Reason "" is not
// worth a note.
using Hidden = std::map<std::string, std::string>;
std::vector<Hidden> hidden_names(const Folders &folders);

}  // namespace tandem::files
