// SPDX-License-Identifier: Apache-2.0
// Gives the files of a new set their names, removes those of the sets that it replaces, and cleans up after runs that
// ended in between (docs/format.md, section 8). A temporary with a start record is a shard: everything before
// it is on the disk.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/pending_file.hpp"
#include "files/format.hpp"
#include "files/names.hpp"

namespace tandem::files {

// ---- what lies in folders ----

// Where a shard of a set lies.
enum class Form {
  temporary,
  by_set,   // <set id>.III.tandem
  by_name,  // <name of the header>.III.tandem
  renamed   // by a user, or by repair
};

struct Part {
  std::size_t folder = 0;  // in the Folders
  std::string name;
  std::uint32_t index = 0;
  Form form = Form::temporary;
  bool is_whole = false;       // has its full length and an intact record; of a temporary, that at its start
  bool is_unfinished = false;  // a temporary with zeros for a start record: nothing of its set has a name
  uid_t owner = 0;             // of the file
  std::string unread;          // why none of these three is known
};

struct SetParts {
  std::optional<SetHeader> header;  // of a part that is whole
  std::vector<Part> parts;

  bool has(Form form) const;
  bool has_unfinished() const;
  bool is_known_damaged() const;      // all are temporaries, and none tells the set's name
  bool was_never_complete() const;    // or a file was damaged before any of them got its name
  bool has_name() const;              // one of its shards
  std::uint32_t whole_count() const;  // different shards
  bool is_whole() const { return header && whole_count() == header->shard_count(); }
};

// Files of sets, by their records: temporaries, shards with their set's id for a name, and those that are called like
// these sets or `set_name`. Others are not read. Folders that cannot be listed are passed over.
struct FolderContents {
  std::map<SetId, SetParts> sets;
  std::vector<std::pair<std::size_t, std::string>> lone;         // folder, name: outputs that are written or were
  std::vector<std::pair<std::size_t, std::string>> old_records;  // of an older Tandem
  std::map<std::string, std::string> unread;  // shard files by their names, with the reason: their set is not known
};
FolderContents contents_of(const Folders &folders, const std::string &set_name);

// Whether it is a shard file, or shard file `index` of that set, according to one of its ends. Throw if it cannot be
// read.
bool is_shard_file(const Folder &folder, const std::string &name);
bool is_shard_of(const Folder &folder, const std::string &name, const SetId &set_id, std::uint32_t index);
// Whether the start record of a temporary is not written. False if that cannot be known.
bool is_unwritten(std::span<const std::byte, kRecordBytes> start);

// ---- finishing ----

// A process that lives and writes the set holds a lock on each of its files until all have their names.
Lock lock_of(const Folders &folders, const SetParts &set);

// Gives the temporaries of a whole set their names, removes what its header says that it replaces, and then takes the
// names that this has made free. Each step is on the disk before the next begins. Can be repeated from any point.
// Throws if a step is refused; nothing is lost then. replaces: also files at these names that are of no set that is
// known. The caller has locked the folders.
struct Finished {
  std::vector<std::string> notes;  // of sets that were replaced and not found as a whole
  // Removed files, still open. Freeing their memory or blocks takes long, and several threads can share the work. Fewer
  // if this process may open few files.
  std::vector<Descriptor> replaced;
};
Finished finish_set(const Folders &folders, const FolderContents &contents, const SetId &set_id, bool replaces,
                    bool no_sync);

// ---- cleaning up ----

struct Recovered {
  std::uint32_t finished_set_count = 0;  // whole: the files got their names
  std::uint32_t removed_set_count = 0;   // never complete, or replaced: the temporaries are gone
  std::uint32_t removed_file_count = 0;  // other temporaries
  std::uint32_t left_count = 0;          // sets and files that stay unchanged; see notes
  std::vector<std::string> notes;        // a sentence for each of these
  std::vector<SetId> removed;            // sets
};

// Finishes sets that are whole, and removes the temporaries of those that were never complete, as far as this process
// may. Files of a live writer are left alone. The caller has locked the folders. A dry run reports what it would do
// and changes nothing.
enum class CleanUp { dry_run, real };
Recovered recover(const Folders &folders, CleanUp clean_up);

// The same for folders, and the folders of files, by their paths. Holds and locks only folders that have remains of
// sets, so there may be more folders than open files. If another process keeps one locked, nothing is done, and a note
// says so.
Recovered recover(const std::vector<std::string> &paths, CleanUp clean_up, const LockWait &wait);

}  // namespace tandem::files
