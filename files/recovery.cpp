// SPDX-License-Identifier: Apache-2.0
#include "files/recovery.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>

#include "base/io_error.hpp"
#include "base/text.hpp"
#include "files/commit.hpp"
#include "files/recoverable.hpp"

namespace tandem::files {
namespace {

// The files of one set in one folder.
struct FolderPart {
  std::size_t folder = 0;
  bool has_pending = false, has_commit = false;
  std::set<std::uint32_t> temporaries;
  std::optional<CommitRecord> record;            // if there is one and it can be read
  std::optional<std::uint32_t> strange_version;  // the record is intact, but of an unknown version
};

// The files of one set in all folders.
struct Unfinished {
  std::vector<FolderPart> parts;
  bool counts = false;  // a commit record says so, or a file has its final name already, which needs a commit
  // The set counts and would replace older files, but these folders hold fewer of its shards than its content needs.
  bool held_back = false;
  std::uint32_t shard_count = 0, needed_count = 0;  // of one that would replace older files
};

enum class Verdict {
  forward,    // the set counts
  held_back,  // it counts, but the files that it would replace may be better than its own
  back,       // it does not count
  waits,      // it has only a record here, which the lead needs to see
  asks_lead   // the answer is in a folder that is not here, or cannot be read
};

struct Survey {
  std::map<SetId, Unfinished> sets;
  std::vector<std::pair<std::size_t, SetId>> lone;    // folder, random number
  std::map<SetId, std::vector<FolderPart>> given_up;  // of a set that counts: it removes these sets
};

const FolderPart *lead_of(const std::vector<FolderPart> &parts) {
  const auto lead = std::ranges::find_if(parts, [](const FolderPart &p) { return p.record && p.record->folder == 0; });
  return lead != parts.end() ? &*lead : nullptr;
}

std::string record_name(const SetId &set_id, const FolderPart &part) {
  return own_name({part.has_commit ? OwnKind::commit_record : OwnKind::pending_record, set_id});
}

void read_record(const Descriptor &file, const SetId &set_id, FolderPart *part) {
  const std::vector<std::byte> bytes = read_commit_record(file);
  CommitRecord record;
  if (parse_commit_record(bytes, &record)) {
    if (record.set_id == set_id) part->record = std::move(record);
  } else if (const auto version = commit_record_version(bytes); version && version != kCommitRecordVersion) {
    part->strange_version = version;
  }
}

Verdict verdict_on(const FolderPart &part, const Unfinished &set, std::size_t named_count) {
  if (!part.has_pending && !part.has_commit) return Verdict::back;  // an unfinished rebuilt file
  if (part.strange_version) return Verdict::asks_lead;
  if (!part.record) return part.has_pending && part.temporaries.empty() ? Verdict::back : Verdict::asks_lead;
  if (set.counts) return set.held_back ? Verdict::held_back : Verdict::forward;
  if (lead_of(set.parts) != nullptr) return Verdict::back;
  // Temporaries are made after all records. Their names change only when the record here is committed.
  if (!part.temporaries.empty()) return Verdict::asks_lead;
  return named_count < part.record->folder_count ? Verdict::waits : Verdict::back;  // back: there is no lead any more
}

// To a reader, an unreadable file does not exist.
bool reads_as_shard_of(const Folder &folder, const std::string &name, const SetId &set_id, std::uint32_t index) {
  try {
    return is_shard_of(folder, name, set_id, index);
  } catch (const Error &) {
    return false;
  }
}

// A shard of the set has its name in one of these folders, or the one that repair gives it if that is taken.
bool is_named(const CommitRecord &record, const Folders &folders) {
  for (const std::string &name : {record.name, hexadecimal(record.set_id)})
    for (std::uint32_t i = 0; i < record.shard_count; ++i)
      for (const auto &folder : folders)
        if (reads_as_shard_of(*folder, shard_file_name(name, i), record.set_id, i)) return true;
  return false;
}

const CommitRecord *any_record(const Unfinished &set) {
  const auto part = std::ranges::find_if(set.parts, [](const FolderPart &p) { return p.record.has_value(); });
  return part != set.parts.end() ? &*part->record : nullptr;
}

bool is_proven(const Unfinished &set, const Folders &folders) {
  const auto any = [&](auto of_part) { return std::ranges::any_of(set.parts, of_part); };
  if (any([](const FolderPart &p) { return p.has_commit; })) return true;
  const CommitRecord *record = any_record(set);
  return record != nullptr && lead_of(set.parts) == nullptr &&
         any([](const FolderPart &p) { return !p.temporaries.empty(); }) && is_named(*record, folders);
}

// Holds back a set that would replace older files, unless its complete shards here, under any of their names, can be
// decoded.
void hold_back(Unfinished &set, const Folders &folders) {
  const CommitRecord *record = any_record(set);
  if (!set.counts || record == nullptr || !record->force) return;
  std::optional<SetHeader> found;
  std::vector<std::uint8_t> present(record->shard_count, 0);
  for (std::uint32_t i = 0; i < record->shard_count; ++i) {
    const auto is_whole = [&](const Folder &folder, const std::string &name) {
      try {
        const auto header = whole_shard_of(folder, name, record->set_id, i);
        if (header) found = header;
        return header.has_value();
      } catch (const Error &) {
        return false;  // not readable: that proves nothing
      }
    };
    if (std::ranges::any_of(set.parts,
                            [&](const FolderPart &part) {
                              return part.temporaries.contains(i) &&
                                     is_whole(*folders[part.folder],
                                              own_name({OwnKind::set_temporary, record->set_id, i}));
                            }) ||
        std::ranges::any_of(folders, [&](const auto &folder) {
          return is_whole(*folder, shard_file_name(record->name, i)) ||
                 is_whole(*folder, shard_file_name(hexadecimal(record->set_id), i));
        }))
      present[i] = 1;
  }
  set.shard_count = static_cast<std::uint32_t>(std::ranges::count(present, 1));
  if (found) set.needed_count = found->k;
  if (found) present.resize(found->shard_count());  // it may have been resized since
  set.held_back = !found || !shards_suffice(*found, present);
}

// A set that was given up by a set that counts does not count any more, even if its own lead says so.
void set_given_up_aside(Survey &found, std::size_t named_count) {
  std::set<std::pair<std::size_t, SetId>> given_up;  // folder, set
  for (const auto &[set_id, unfinished] : found.sets)
    for (const FolderPart &part : unfinished.parts)
      if (part.record && verdict_on(part, unfinished, named_count) == Verdict::forward)
        for (const SetId &id : part.record->given_up)
          if (id != set_id) given_up.emplace(part.folder, id);
  for (const auto &entry : given_up) {
    const std::size_t folder = entry.first;
    const SetId &id = entry.second;
    const auto set = found.sets.find(id);
    if (set == found.sets.end()) continue;
    std::vector<FolderPart> &parts = set->second.parts;
    const auto part = std::ranges::find_if(parts, [&](const FolderPart &p) { return p.folder == folder; });
    if (part == parts.end()) continue;
    found.given_up[id].push_back(std::move(*part));
    parts.erase(part);
    if (parts.empty()) found.sets.erase(set);
  }
}

// held_only: passes over folders that are not held.
Survey survey(const Folders &folders, bool held_only = false) {
  Survey found;
  for (std::size_t folder = 0; folder < folders.size(); ++folder) {
    if (!folders[folder]->can_be_listed()) continue;  // nothing can be known here, and files are read by their names
    if (held_only && !folders[folder]->is_held()) continue;
    std::map<SetId, FolderPart> parts;
    for (const std::string &name : folders[folder]->names()) {
      const std::optional<OwnName> own = parse_own_name(name);
      if (!own) continue;
      if (own->kind == OwnKind::lone_temporary) {
        found.lone.emplace_back(folder, own->set_id);
        continue;
      }
      FolderPart &part = parts[own->set_id];
      part.folder = folder;
      if (own->kind == OwnKind::set_temporary) part.temporaries.insert(own->index);
      part.has_pending |= own->kind == OwnKind::pending_record;
      part.has_commit |= own->kind == OwnKind::commit_record;
    }
    for (auto &[set_id, part] : parts) {
      if (part.has_pending || part.has_commit)
        read_record(folders[folder]->open_file(record_name(set_id, part), O_RDONLY), set_id, &part);
      found.sets[set_id].parts.push_back(std::move(part));
    }
  }
  for (auto &[set_id, set] : found.sets) set.counts = is_proven(set, folders);
  set_given_up_aside(found, folders.size());
  for (auto &[set_id, set] : found.sets) hold_back(set, folders);
  return found;
}

std::string of_another_tandem(const std::string &path, const FolderPart &part) {
  return base::text(path, " is of version ", *part.strange_version, ", made by another Tandem");
}

std::string cannot_lock(const std::string &path, int error) {
  return base::text(path, " cannot be locked, ", error_text(error), ": a live process may be writing it, so it stays");
}

// One set after the other. A set that cannot be handled does not stop the others.
class Recovery {
 public:
  Recovery(const Folders &folders, bool dry_run)
      : folders_(folders), dry_run_(dry_run), survey_(survey(folders, true)) {}

  Recovered run() {
    for (auto &[set_id, set] : survey_.sets) {
      try {
        recover_set(set_id, set);
      } catch (const Error &error) {
        leave("remains of set ", hexadecimal(set_id), " stay for now: ", error.what());
      }
    }
    for (const auto &[folder, number] : survey_.lone)
      remove_temporary(*folders_[folder], own_name({OwnKind::lone_temporary, number}));
    return std::move(result_);
  }

 private:
  void recover_set(const SetId &set_id, Unfinished &set) {
    const std::string id = hexadecimal(set_id);
    if (set.held_back)
      return leave("set ", id, " is complete, but ",
                   set.shard_count == 0 ? "none of its shards is in these folders"
                                        : base::text(set.shard_count, " of its shards are in these folders and ",
                                                     set.needed_count, " are needed"),
                   ": it replaces no older file until all folders of its encode are named");
    std::vector<FolderRecord> forward, back;
    std::vector<std::pair<std::size_t, std::string>> loose;  // folder, name
    for (FolderPart &part : set.parts) {
      const std::shared_ptr<Folder> &folder = folders_[part.folder];
      if (!part.has_pending && !part.has_commit) {
        for (const std::uint32_t index : part.temporaries)
          loose.emplace_back(part.folder, own_name({OwnKind::set_temporary, set_id, index}));
        continue;
      }
      const std::string name = record_name(set_id, part);
      Descriptor file = open_to_lock(*folder, name);
      if (!file) return leave(folder->path_of(name), " cannot be opened: ", error_text(errno));
      if (const Lock lock = lock_file(file); lock != Lock::ours)
        return leave(lock == Lock::held_by_another ? base::text("set ", id, " is being written to ", folder->path())
                                                   : cannot_lock(folder->path_of(name), errno));
      const Verdict verdict = verdict_on(part, set, folders_.size());
      if (verdict == Verdict::waits) continue;
      if (part.strange_version)
        return leave(of_another_tandem(folder->path_of(name), part), "; its remains of set ", id, " stay as they are");
      if (verdict == Verdict::asks_lead && !part.record)
        return leave(folder->path_of(name), " is damaged; whether set ", id, " was complete is not known");
      if (verdict == Verdict::asks_lead) {
        leave(folder->path(), " holds ", files(part.temporaries.size()), " of set ", id,
              ", which may be complete: name also the first folder of its encode");
        continue;
      }
      if (!part.record) {  // damaged, and nothing depends on it
        part.record.emplace();
        part.record->set_id = set_id;
      }
      (verdict == Verdict::forward ? forward : back)
          .push_back({folder, *part.record, part.has_commit, std::move(file)});
    }
    for (const auto &[folder, name] : loose) remove_temporary(*folders_[folder], name);
    if (!forward.empty()) finish_set(id, forward);
    if (!back.empty()) remove_set(id, back);
  }

  void finish_set(const std::string &id, std::vector<FolderRecord> &members) {
    const std::string where = list(members);
    ++result_.finished_set_count;
    if (dry_run_) {
      if (!leaves_record(members, folders_)) result_.would_finish.push_back(members.front().record.set_id);
      return note("would finish set ", id, " in ", where, ": it is complete");
    }
    const Finished finished = roll_forward(members, folders_, false);
    note("finished set ", id, " in ", where, ": a run that ended early had completed it");
    for (const std::string &path : finished.missing)
      leave(path, " of set ", id,
            " is missing: another program removed it before it had its name; files of this name that the "
            "set was to replace stay in its folder");
    if (finished.record_left) wait_for_others(members, id);
  }

  void remove_set(const std::string &id, std::vector<FolderRecord> &members) {
    const std::string where = list(members);
    ++result_.removed_set_count;
    if (dry_run_) return note("would remove the remains of the incomplete set ", id, " in ", where);
    const bool done = roll_back(members, false);
    note("removed the remains of the incomplete set ", id, " in ", where, ": its run ended early");
    if (done) return;
    for (const FolderRecord &member : members)
      if (member.record.folder == 0)
        leave(member.folder->path_of(own_name({OwnKind::pending_record, member.record.set_id})),
              " stays until each of the ", member.record.folder_count, " folders of set ", id,
              " was cleaned up with it; where one is lost, the file may be removed");
  }

  void wait_for_others(const std::vector<FolderRecord> &members, const std::string &id) {
    leave("a record of set ", id, " stays in ", list(members), " until all its ", members.front().record.folder_count,
          " folders are named together");
  }

  void remove_temporary(const Folder &folder, const std::string &name) {
    const Descriptor file = open_to_lock(folder, name);
    if (!file && errno == ENOENT) return;
    if (!file) return leave(folder.path_of(name), " is no file of Tandem, or cannot be opened");
    if (const Lock lock = lock_file(file); lock != Lock::ours)
      return leave(lock == Lock::held_by_another ? base::text(folder.path_of(name), " is being written")
                                                 : cannot_lock(folder.path_of(name), errno));
    try {
      if (!dry_run_) folder.remove(name);
    } catch (const Error &error) {
      return leave(error.what());
    }
    ++result_.removed_file_count;
    note(dry_run_ ? "would remove" : "removed", " ", folder.path_of(name), ", which a run that ended early left");
  }

  static std::string files(std::size_t count) { return base::text(count, " file", count == 1 ? "" : "s"); }
  static std::string list(const std::vector<FolderRecord> &members) {
    std::string text;
    for (const FolderRecord &member : members) text += (text.empty() ? "" : ", ") + member.folder->path();
    return text;
  }

  template <class... Parts>
  void note(const Parts &...parts) {
    result_.notes.push_back(base::text(parts...));
  }
  template <class... Parts>
  void leave(const Parts &...parts) {
    ++result_.left_count;
    note(parts...);
  }

  const Folders &folders_;
  bool dry_run_;
  Survey survey_;
  Recovered result_;
};

}  // namespace

Recovered recover(const Folders &folders, bool dry_run) { return Recovery(folders, dry_run).run(); }

std::vector<std::vector<SetId>> refuse_unfinished(const Folders &folders, const std::string &set_name,
                                                  const std::vector<SetId> &except, bool force) {
  std::vector<std::vector<SetId>> given_up(folders.size());
  const Survey found = survey(folders);
  const auto give_up = [&](const SetId &set_id, const FolderPart &part) {
    std::vector<SetId> &here = given_up[part.folder];
    if (std::ranges::find(here, set_id) != here.end()) return;
    const std::string &folder = folders[part.folder]->path();
    if (here.size() == kMaxGivenUpCount)
      fail(TANDEM_ERROR_IO, folder, " holds more than ", kMaxGivenUpCount, " unfinished sets called ", set_name,
           ", and --force gives up ", kMaxGivenUpCount,
           " at once. Of those whose files are not wanted any more, one is ", hexadecimal(set_id), ": remove ", folder,
           "/", record_name(set_id, part), " and ", folder, "/.", hexadecimal(set_id), ".*.tandem-tmp");
    here.push_back(set_id);
  };
  for (const auto &[set_id, set] : found.sets) {
    if (std::ranges::find(except, set_id) != except.end()) continue;
    for (const FolderPart &part : set.parts) {
      const Verdict verdict = verdict_on(part, set, folders.size());
      if (verdict == Verdict::back || verdict == Verdict::waits) continue;
      if (part.record && part.record->name != set_name) continue;
      const Folder &folder = *folders[part.folder];
      const std::string name = record_name(set_id, part), path = folder.path_of(name);
      const Descriptor file = open_to_lock(folder, name);
      const Lock lock = file ? lock_file(file) : Lock::unknown;
      const int error = errno;
      // A pending set that a live process holds does not count yet. When it does, it is the newer set.
      if (!part.has_commit && lock == Lock::held_by_another) continue;
      if (part.strange_version)
        fail(TANDEM_ERROR_IO, of_another_tandem(path, part), ": it may belong to an unfinished set, also called ",
             set_name, ", which that Tandem can finish");
      if (!part.record)
        fail(TANDEM_ERROR_IO, path, " is damaged: it may belong to an unfinished set, also called ", set_name,
             ". If no file of that set is wanted any more, remove it and ", folder.path(), "/.", hexadecimal(set_id),
             ".*.tandem-tmp");
      const bool may_be_lost = lead_of(set.parts) == nullptr || verdict == Verdict::held_back;
      if (force && may_be_lost && lock == Lock::ours) {
        give_up(set_id, part);
        // Sets that this set has given up, but not removed yet, would come back without it.
        for (const auto &[older_id, older_parts] : found.given_up)
          for (const FolderPart &older : older_parts)
            if (older.folder == part.folder &&
                std::ranges::find(part.record->given_up, older_id) != part.record->given_up.end())
              give_up(older_id, older);
        continue;
      }
      const std::string way_out =
          !may_be_lost ? ""
          : !force     ? "; where folders of it are lost, use --force to give it up"
          : lock == Lock::held_by_another
              ? "; --force does not give it up while a live process holds the record"
              : "; --force does not give it up where the record cannot be locked: " + error_text(error);
      const std::string first_step =
          folders.size() < part.record->folder_count
              ? base::text("name all folders of its encode, ", part.record->folder_count, ", or repair it")
          : lead_of(set.parts) != nullptr ? "repair it"
                                          : "the folder that its encode named first has no record of it: repair it";
      fail(TANDEM_ERROR_IO, "set ", hexadecimal(set_id), ", also called ", set_name, ", is not finished in ",
           folder.path(), " (its record is ", path, "): ", first_step, way_out);
    }
  }
  return given_up;
}

namespace {

bool has_own_names(const Folder &folder) {
  const std::vector<std::string> names = folder.names();
  return std::ranges::any_of(names, [](const std::string &name) { return parse_own_name(name).has_value(); });
}

// Holds the folders that have remains. Returns whether there were more of them than before.
bool hold_those_with_remains(Folders &folders) {
  bool more = false;
  for (auto &folder : folders) {
    if (folder->is_held() || !has_own_names(*folder)) continue;
    auto held = std::make_shared<Folder>(folder->path());
    if (held->identity() != folder->identity()) continue;  // another folder took its path
    folder = std::move(held);
    more = true;
  }
  return more;
}

// Of folders that are not held. Only those with remains are locked and changed. The others tell whether a set counts.
Recovered recover_many(Folders folders, bool dry_run, LockWait wait) {
  wait.began = wait.began.value_or(std::chrono::steady_clock::now());
  if (!hold_those_with_remains(folders)) return {};
  for (;;) {
    Folders held;
    std::ranges::copy_if(folders, std::back_inserter(held), [](const auto &folder) { return folder->is_held(); });
    const FoldersLock lock(held, wait);
    // A writer locks all its folders before it makes a record in any. So its other records show now.
    if (!hold_those_with_remains(folders)) return recover(folders, dry_run);
  }
}

}  // namespace

Recovered recover(const std::vector<std::string> &paths, bool dry_run, const LockWait &wait) {
  ManyFolders named;
  for (const std::string &path : paths) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) fail_io("find", path, errno);
    if (S_ISDIR(status.st_mode)) {
      named.add(path, FolderUse::list);
    } else {
      named.add(folder_of(path), FolderUse::enter);
    }
  }
  Folders folders;
  std::vector<std::string> notes;
  for (const auto &folder : named.list()) {
    if (folder->can_be_listed()) {
      folders.push_back(folder);
    } else {
      notes.push_back(
          base::text(folder->path(), " cannot be listed, so remains of runs that ended early are not found there"));
    }
  }
  Recovered result;
  try {
    result = recover_many(std::move(folders), dry_run, wait);
  } catch (const FolderLocked &locked) {
    result.left_count = 1;
    notes.push_back(base::text(locked.what(), "; nothing is cleaned up"));
  }
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
}

namespace {

// As roll_forward does: only a folder that has all its shards loses its stale files.
bool removes_stale(const Folder &folder, const CommitRecord &record) {
  try {
    return missing_here(folder, record).empty();
  } catch (const Error &) {
    return false;
  }
}

}  // namespace

std::vector<Hidden> hidden_names(const Folders &folders) {
  std::vector<Hidden> hidden(folders.size());
  const Survey found = survey(folders);
  for (const auto &[folder, number] : found.lone) hidden[folder][own_name({OwnKind::lone_temporary, number})] = "";
  for (const auto &[set_id, parts] : found.given_up)
    for (const FolderPart &part : parts) {
      for (const OwnKind kind : {OwnKind::pending_record, OwnKind::commit_record})
        hidden[part.folder][own_name({kind, set_id})] = "";
      for (const std::uint32_t index : part.temporaries)
        hidden[part.folder][own_name({OwnKind::set_temporary, set_id, index})] = "";
    }
  for (const auto &[set_id, set] : found.sets) {
    for (const FolderPart &part : set.parts) {
      Hidden &here = hidden[part.folder];
      for (const OwnKind kind : {OwnKind::pending_record, OwnKind::commit_record}) here[own_name({kind, set_id})] = "";
      const Verdict verdict = verdict_on(part, set, folders.size());
      if (verdict == Verdict::held_back) continue;  // the files of both sets are shown
      const bool counts = verdict == Verdict::forward;
      for (const std::uint32_t index : part.temporaries) {
        const std::string temporary = own_name({OwnKind::set_temporary, set_id, index});
        if (!counts || !part.record->is_here(index)) {
          here[temporary] = "";
        } else if (part.record->force && reads_as_shard_of(*folders[part.folder], temporary, set_id, index)) {
          here[shard_file_name(part.record->name, index)] = "about to be replaced by a newer set";
        }
      }
      if (!counts || part.record->stale.none() || !removes_stale(*folders[part.folder], *part.record)) continue;
      for (std::uint32_t i = 0; i < kMaxShardCount; ++i) {
        if (!part.record->stale[i] || part.record->is_here(i)) continue;
        const std::string name = shard_file_name(part.record->name, i);
        if (!reads_as_shard_of(*folders[part.folder], name, set_id, i))
          here.emplace(name, "about to be replaced by a newer set");
      }
    }
  }
  return hidden;
}

}  // namespace tandem::files
