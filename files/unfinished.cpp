// SPDX-License-Identifier: Apache-2.0
#include "files/unfinished.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>

#include "base/io_error.hpp"
#include "base/text.hpp"

namespace tandem::files {
namespace {

struct Ends {
  std::optional<Record> start, end;  // intact, and in their places
  bool is_unwritten = false;         // see files::is_unwritten
  int start_error = 0;               // it could not be read
  std::uint64_t file_bytes = 0;
  uid_t owner = 0;

  const Record *any() const { return start ? &*start : end ? &*end : nullptr; }
  bool has_full_length() const { return any() != nullptr && file_bytes == any()->set.shard_file_bytes(); }
};

// Nothing for a link, for anything that is not a regular file, and for a missing name. Throws if the file cannot be
// read: it may be a shard file.
std::optional<Ends> ends_of(const Folder &folder, const std::string &name) {
  const Descriptor file = folder.open_file(name, O_RDONLY);
  if (!file && (errno == ENOENT || errno == ELOOP || errno == EINVAL || errno == ENAMETOOLONG)) return {};
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0) fail_io("open", folder.path_of(name), errno);
  Ends ends;
  ends.file_bytes = static_cast<std::uint64_t>(status.st_size);
  ends.owner = status.st_uid;
  int error = 0;
  const auto record_at = [&](std::uint64_t at, RecordEnd end, std::optional<Record> *record_out) {
    std::array<std::byte, kRecordBytes> bytes = {};
    const std::int64_t got = read_at(file.get(), bytes.data(), bytes.size(), at);
    if (got < 0) error = errno;
    if (end == RecordEnd::start) {
      ends.start_error = error;
      ends.is_unwritten = got >= 0 && is_unwritten(bytes);
    }
    Record record;
    if (got == static_cast<std::int64_t>(bytes.size()) && parse_record(bytes, &record) == ParseResult::record &&
        record.end == end)
      *record_out = record;
  };
  record_at(0, RecordEnd::start, &ends.start);
  if (ends.file_bytes >= kRecordBytes) record_at(ends.file_bytes - kRecordBytes, RecordEnd::end, &ends.end);
  if (error != 0 && ends.any() == nullptr) fail_io("read", folder.path_of(name), error);
  return ends;
}

Form form_of(const std::string &stem, const SetHeader &header) {
  return stem == header.name ? Form::by_name : stem == hexadecimal(header.set_id) ? Form::by_set : Form::renamed;
}

void add_temporary(const Folder &folder, std::size_t place, const std::string &name, const OwnName &own,
                   FolderContents &contents) {
  SetParts &set = contents.sets[own.set_id];
  Part part{place, name, own.index, Form::temporary, false, false, 0, ""};
  try {
    const auto ends = ends_of(folder, name);
    if (!ends) return;
    part.is_unfinished = ends->is_unwritten;
    part.owner = ends->owner;
    const Record *const record = ends->any();
    if (record != nullptr && record->set.set_id == own.set_id && record->shard_index == own.index &&
        ends->has_full_length()) {
      set.header = record->set;
      part.is_whole = ends->start.has_value();
      if (ends->start_error != 0) fail_io("read", folder.path_of(name), ends->start_error);
    }
  } catch (const Error &error) {
    part.unread = error.what();
  }
  set.parts.push_back(std::move(part));
}

void add_shard(const Folder &folder, std::size_t place, const std::string &name, const std::string &stem,
               FolderContents &contents) {
  try {
    const auto ends = ends_of(folder, name);
    const Record *const record = ends ? ends->any() : nullptr;
    if (record == nullptr) return;
    SetParts &set = contents.sets[record->set.set_id];
    if (ends->has_full_length() && !set.header) set.header = record->set;
    set.parts.push_back({place, name, record->shard_index, form_of(stem, record->set), ends->has_full_length(), false,
                         ends->owner, ""});
  } catch (const Error &error) {
    contents.unread.emplace(folder.path_of(name), error.what());
  }
}

// Descriptors that this process may need for other things, while replaced files stay open for convenience.
constexpr rlim_t kLeftForOthersCount = 64;

// The lowest free descriptor is used first: the number of a new one tells how many there are.
bool leaves_enough(const Descriptor &newest) {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(newest.get()) + kLeftForOthersCount < limit.rlim_cur;
}

void sync_file(const Folder &folder, const std::string &name) {
  const Descriptor file = open_to_lock(folder, name);
  if (!file || fsync(file.get()) != 0) fail_io("sync", folder.path_of(name), errno);
}

void sync(const Folders &folders, const std::set<std::size_t> &places, bool no_sync) {
  if (no_sync) return;
  for (const std::size_t place : places) folders[place]->sync();
}

// Names are taken when nothing is left to remove. So a shard with its name says that this has ended: files of the old
// sets came back later, and stay.
std::vector<SetId> replaced_now(const SetParts &set) {
  std::vector<SetId> ids = set.has(Form::by_name) ? std::vector<SetId>() : set.header->replaced;
  std::erase(ids, set.header->set_id);  // no encode writes that
  return ids;
}

// Temporaries that are damaged tell no name.
bool is_namesake(const SetParts &set, const std::string &name) {
  return set.header ? set.header->name == name : set.is_known_damaged();
}

// Files that the set replaces: those that are called like it, and those of its namesakes.
bool replaces(const SetParts &set, const SetParts &old, const Part &part) {
  return is_called(part.name, set.header->name) || (is_namesake(old, set.header->name) && part.form != Form::renamed);
}

// The steps of finish_set.
class Finishing {
 public:
  Finishing(const Folders &folders, const FolderContents &contents, const SetId &set_id, bool replaces, bool no_sync)
      : folders_(folders),
        contents_(contents),
        set_(contents.sets.at(set_id)),
        set_id_(set_id),
        replaces_(replaces),
        no_sync_(no_sync) {
    for (const Part &part : set_.parts) here_.insert(part.folder);
  }

  // What is complete need not be on the disk: the run before may have ended before its sync.
  void sync_files() {
    for (const Part &part : set_.parts)
      if (part.form == Form::temporary && !no_sync_) sync_file(*folders_[part.folder], part.name);
    sync(folders_, here_, no_sync_);
  }

  // The id's name, too, if something is replaced: it says that this may not have ended.
  void name_temporaries() {
    for (const Part &part : set_.parts) {
      const Folder &folder = *folders_[part.folder];
      if (part.form == Form::by_set) by_set_.push_back(part);
      if (part.form != Form::temporary) continue;
      if (has_name(part)) {  // a second name of one file, or repair made it
        folder.remove(part.name);
        continue;
      }
      std::string name = shard_file_name(set_.header->name, part.index);
      if (!set_.header->replaced.empty() || folder.has(name)) {
        name = shard_file_name(hexadecimal(set_id_), part.index);
        by_set_.push_back(part);
        by_set_.back().name = name;
      }
      folder.rename(part.name, name, false);
    }
    sync(folders_, here_, no_sync_);
  }

  void remove_replaced() {
    std::set<std::size_t> changed;
    for (const SetId &id : replaced_now(set_)) {
      const auto found = contents_.sets.find(id);
      if (found == contents_.sets.end()) continue;
      const SetParts &old = found->second;
      for (const Part &part : old.parts) {
        const Folder &folder = *folders_[part.folder];
        if (!replaces(set_, old, part) || !folder.is_held()) continue;
        if (part.form != Form::temporary && !is_shard_of(folder, part.name, id, part.index)) continue;
        if (Descriptor file = folder.open_file(part.name, O_RDONLY); file && leaves_enough(file))
          finished.replaced.push_back(std::move(file));
        folder.remove(part.name);
        changed.insert(part.folder);
      }
      if (old.has_name() && old.header && !old.is_whole())
        finished.notes.push_back(base::text("of the replaced set ", hexadecimal(id), ", ", old.whole_count(), " of ",
                                            old.header->shard_count(),
                                            " shards were found; the others are out of date where they lie"));
    }
    sync(folders_, changed, no_sync_);
  }

  void take_names() {
    std::set<std::size_t> changed;
    for (const Part &part : by_set_) {
      const Folder &folder = *folders_[part.folder];
      const std::string name = shard_file_name(set_.header->name, part.index);
      if (!folder.is_held() || (!replaces_ && folder.has(name))) continue;
      folder.rename(part.name, name, replaces_);
      changed.insert(part.folder);
    }
    sync(folders_, changed, no_sync_);
  }

  Finished finished;

 private:
  bool has_name(const Part &temporary) const {
    return std::ranges::any_of(set_.parts, [&](const Part &part) {
      return part.form != Form::temporary && part.folder == temporary.folder && part.index == temporary.index &&
             part.is_whole;
    });
  }

  const Folders &folders_;
  const FolderContents &contents_;
  const SetParts &set_;
  const SetId &set_id_;
  bool replaces_, no_sync_;
  std::set<std::size_t> here_;  // folders with files of the set
  std::vector<Part> by_set_;    // that wait for their names
};

}  // namespace

bool SetParts::has(Form form) const {
  return std::ranges::any_of(parts, [&](const Part &part) { return part.form == form; });
}
bool SetParts::has_unfinished() const { return std::ranges::any_of(parts, &Part::is_unfinished); }
bool SetParts::is_known_damaged() const {
  return !header && !has_name() && !has_unfinished() && std::ranges::all_of(parts, &std::string::empty, &Part::unread);
}
// A rename begins when every file is complete and on the disk. So none has begun if one is not written, or if all are
// here under their temporary names and one is damaged.
bool SetParts::was_never_complete() const {
  if (has_name()) return false;
  const auto is_damaged = [](const Part &part) { return !part.is_whole && part.unread.empty(); };
  std::set<std::uint32_t> here;
  for (const Part &part : parts) here.insert(part.index);
  return has_unfinished() || (header && here.size() == header->shard_count() && std::ranges::any_of(parts, is_damaged));
}
bool SetParts::has_name() const {
  return std::ranges::any_of(parts, [](const Part &part) { return part.form != Form::temporary; });
}
std::uint32_t SetParts::whole_count() const {
  std::set<std::uint32_t> shards;
  for (const Part &part : parts)
    if (part.is_whole) shards.insert(part.index);
  return static_cast<std::uint32_t>(shards.size());
}

bool is_unwritten(std::span<const std::byte, kRecordBytes> start) {
  return std::ranges::all_of(start, [](std::byte byte) { return byte == std::byte{0}; });
}

bool is_shard_file(const Folder &folder, const std::string &name) {
  const auto ends = ends_of(folder, name);
  return ends && ends->any() != nullptr;
}

bool is_shard_of(const Folder &folder, const std::string &name, const SetId &set_id, std::uint32_t index) {
  const auto ends = ends_of(folder, name);
  return ends && ends->any() != nullptr && ends->any()->set.set_id == set_id && ends->any()->shard_index == index;
}

FolderContents contents_of(const Folders &folders, const std::string &set_name) {
  FolderContents contents;
  struct Shard {
    std::size_t folder;
    std::string name, stem;
  };
  std::vector<Shard> shards;  // of which the set's id is not in the name
  for (std::size_t place = 0; place < folders.size(); ++place) {
    const Folder &folder = *folders[place];
    if (!folder.can_be_listed()) continue;
    for (const std::string &name : folder.names()) {
      SetId id;
      if (const auto own = parse_own_name(name); own && own->kind == OwnKind::set_temporary) {
        add_temporary(folder, place, name, *own, contents);
      } else if (own) {
        (own->kind == OwnKind::lone_temporary ? contents.lone : contents.old_records).emplace_back(place, name);
      } else if (const auto shard = parse_shard_file_name(name); shard && base::parse_hexadecimal(shard->first, id)) {
        add_shard(folder, place, name, shard->first, contents);
      } else if (shard) {
        shards.push_back({place, name, shard->first});
      }
    }
  }
  std::set<std::string> names{set_name};
  for (const auto &[id, set] : contents.sets)
    if (set.header) names.insert(set.header->name);
  for (const auto &[folder, name, stem] : shards)
    if (names.contains(stem)) add_shard(*folders[folder], folder, name, stem, contents);
  return contents;
}

Lock lock_of(const Folders &folders, const SetParts &set) {
  for (const Part &part : set.parts) {
    if (part.form != Form::temporary && part.form != Form::by_set) continue;
    const Descriptor file = open_to_lock(*folders[part.folder], part.name);
    if (!file && errno == ENOENT) continue;
    if (const Lock lock = file ? lock_file(file) : Lock::unknown; lock != Lock::ours) return lock;
  }
  return Lock::ours;
}

Finished finish_set(const Folders &folders, const FolderContents &contents, const SetId &set_id, bool replaces,
                    bool no_sync) {
  const auto found = contents.sets.find(set_id);
  const SetParts none;
  const SetParts &set = found != contents.sets.end() ? found->second : none;
  for (const Part &part : set.parts)
    if (!part.unread.empty()) fail(TANDEM_ERROR_IO, part.unread);
  if (!set.is_whole())
    fail(TANDEM_ERROR_IO, "another program removed or changed files of set ", hexadecimal(set_id),
         " while it was written: ", set.whole_count(), " shards are left");
  if (!replaced_now(set).empty())
    for (const auto &[path, why] : contents.unread)
      if (is_called(name_of(path), set.header->name)) fail(TANDEM_ERROR_IO, why);
  Finishing finishing(folders, contents, set_id, replaces, no_sync);
  finishing.sync_files();
  finishing.name_temporaries();
  finishing.remove_replaced();
  finishing.take_names();
  return std::move(finishing.finished);
}

namespace {

// One set after the other. A set that cannot be handled does not stop the others.
class Recovery {
 public:
  Recovery(const Folders &folders, CleanUp clean_up)
      : folders_(folders), dry_run_(clean_up == CleanUp::dry_run), contents_(contents_of(folders, "")) {}

  Recovered run() {
    for (const auto &[folder, name] : contents_.old_records) {
      leave(folders_[folder]->path_of(name), " is of a set that an older Tandem did not finish; it is left alone");
      old_.insert(parse_own_name(name)->set_id);
    }
    for (const auto &[set_id, set] : contents_.sets) {
      try {
        if (!old_.contains(set_id)) recover_set(set_id, set);
      } catch (const Error &error) {
        leave("remains of set ", hexadecimal(set_id), " stay for now: ", error.what());
      }
    }
    for (const auto &[folder, name] : contents_.lone)
      if (folders_[folder]->is_held()) remove_temporary(*folders_[folder], name);
    return std::move(result_);
  }

 private:
  void recover_set(const SetId &set_id, const SetParts &set) {
    const bool has_temporaries = set.has(Form::temporary);
    if (!has_temporaries && !(set.is_whole() && !set.header->name.empty() && can_be_renamed(set))) return;
    const std::string id = hexadecimal(set_id);
    if (const Lock lock = lock_of(folders_, set); lock != Lock::ours)
      return leave(
          "set ", id, lock == Lock::held_by_another ? " is being written to " : " stays as it is in ", where(set),
          lock == Lock::held_by_another ? "" : ": its files cannot be locked, so a live process may be writing them");
    if (has_temporaries && successor_of(set_id)) return remove_set(set_id, set, "another set has replaced it");
    if (set.was_never_complete() && may_replace(set, set)) return remove_set(set_id, set, "its run ended early");
    if (set.is_whole() && !set.header->name.empty())
      return is_trusted(set) ? finish(set_id, set)
                             : leave("set ", id, ", called ", set.header->name, ", is not finished in ", where(set),
                                     ": it would replace files of another user; that user can finish it");
    if (set.header)
      return leave("set ", id, ", called ", set.header->name, ", is not finished: ", set.whole_count(), " of its ",
                   set.header->shard_count(), " shards are in ", where(set), " and the other named folders; name all ",
                   "folders of its encode, or repair it");
    leave("set ", id, " is not finished, and its temporaries in ", where(set), " are damaged");
  }

  // A set of its name that is whole and lists it, and on the disk: a shard of it has a name.
  bool successor_of(const SetId &set_id) const {
    const SetParts &old = contents_.sets.at(set_id);
    return std::ranges::any_of(contents_.sets, [&](const auto &each) {
      const SetParts &set = each.second;
      return each.first != set_id && set.is_whole() && set.has_name() && is_namesake(old, set.header->name) &&
             set.header->lists(set_id) && may_replace(set, old);
    });
  }

  // Shards with the id's name can get their own: that is free, or of a set that this one replaces.
  bool can_be_renamed(const SetParts &set) const {
    return std::ranges::any_of(set.parts, [&](const Part &part) {
      const Folder &folder = *folders_[part.folder];
      const std::string name = shard_file_name(set.header->name, part.index);
      return part.form == Form::by_set && folder.is_held() &&
             (!folder.has(name) || is_replaced(set, part.folder, name));
    });
  }

  bool is_replaced(const SetParts &by, std::size_t folder, const std::string &name) const {
    return std::ranges::any_of(replaced_now(by), [&](const SetId &id) {
      const auto old = contents_.sets.find(id);
      return old != contents_.sets.end() && std::ranges::any_of(old->second.parts, [&](const Part &part) {
               return part.folder == folder && part.name == name;
             });
    });
  }

  // Anyone can put files of a set into a folder such as /tmp, and say that it replaces another one.
  static bool may_replace(const SetParts &set, const SetParts &old) {
    return std::ranges::all_of(set.parts, [&](const Part &part) {
      return part.owner == geteuid() || part.owner == 0 ||
             std::ranges::all_of(old.parts, [&](const Part &each) { return each.owner == part.owner; });
    });
  }
  bool is_trusted(const SetParts &set) const {
    return std::ranges::all_of(replaced_now(set), [&](const SetId &id) {
      const auto old = contents_.sets.find(id);
      return old == contents_.sets.end() || may_replace(set, old->second);
    });
  }

  void finish(const SetId &set_id, const SetParts &set) {
    const std::string what = base::text("set ", hexadecimal(set_id), " in ", where(set));
    ++result_.finished_set_count;
    if (dry_run_) return note("would finish ", what, ": it is complete");
    Finished finished = finish_set(folders_, contents_, set_id, false, false);
    note("finished ", what, ": a run that ended early had completed it");
    std::ranges::move(finished.notes, std::back_inserter(result_.notes));
  }

  // Those without a start record last: they show that no file of the set has a name.
  void remove_set(const SetId &set_id, const SetParts &set, const char *why) {
    const std::string what = base::text("the remains of the incomplete set ", hexadecimal(set_id), " in ", where(set));
    ++result_.removed_set_count;
    result_.removed.push_back(set_id);
    if (dry_run_) return note("would remove ", what, ": ", why);
    for (const bool unfinished : {false, true}) {
      std::set<std::size_t> changed;
      for (const Part &part : set.parts) {
        if (part.form != Form::temporary || part.is_unfinished != unfinished) continue;
        folders_[part.folder]->remove(part.name);
        changed.insert(part.folder);
      }
      sync(folders_, changed, false);
    }
    note("removed ", what, ": ", why);
  }

  void remove_temporary(const Folder &folder, const std::string &name) {
    const Descriptor file = open_to_lock(folder, name);
    if (!file && errno == ENOENT) return;
    if (!file) return leave(folder.path_of(name), " is no file of Tandem, or cannot be opened");
    if (const Lock lock = lock_file(file); lock != Lock::ours)
      return leave(folder.path_of(name), lock == Lock::held_by_another
                                             ? " is being written"
                                             : base::text(" cannot be locked, ", error_text(errno),
                                                          ": a live process may be writing it, so it stays"));
    try {
      if (!dry_run_) folder.remove(name);
    } catch (const Error &error) {
      return leave(error.what());
    }
    ++result_.removed_file_count;
    note(dry_run_ ? "would remove" : "removed", " ", folder.path_of(name), ", which a run that ended early left");
  }

  std::string where(const SetParts &set) const {
    std::set<std::string> paths;
    for (const Part &part : set.parts)
      if (part.form == Form::temporary || !set.has(Form::temporary)) paths.insert(folders_[part.folder]->path());
    return base::join(paths, ", ");
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
  FolderContents contents_;
  std::set<SetId> old_;  // sets with records of an older Tandem
  Recovered result_;
};

// Files that clean-up may change: temporaries, shards that wait for their names, and files of the sets called `names`.
bool has_remains(const Folder &folder, const std::set<std::string> &names) {
  return std::ranges::any_of(folder.names(), [&](const std::string &name) {
    if (parse_own_name(name)) return true;
    const auto shard = parse_shard_file_name(name);
    SetId id;
    return shard && (names.contains(shard->first) || parse_hexadecimal(shard->first, id));
  });
}

// Holds the folders that have remains, and those with files of the same sets. Returns whether there were more of them
// than before.
bool hold_those_with_remains(Folders &folders) {
  bool more = false;
  std::set<std::string> names;
  const auto hold = [&](auto &folder) {
    if (folder->is_held() || !has_remains(*folder, names)) return;
    auto held = std::make_shared<Folder>(folder->path());
    if (held->identity() != folder->identity()) return;  // another folder took its path
    folder = std::move(held);
    more = true;
  };
  for (auto &folder : folders) hold(folder);
  if (!more) return false;
  for (const auto &[id, set] : contents_of(folders, "").sets)
    if (set.header && (set.has(Form::temporary) || set.has(Form::by_set))) names.insert(set.header->name);
  for (auto &folder : folders) hold(folder);
  return true;
}

// Of folders that are not held. Only those with remains are locked and changed. The others tell whether a set is whole.
Recovered recover_many(Folders folders, CleanUp clean_up, LockWait wait) {
  wait.began = wait.began.value_or(std::chrono::steady_clock::now());
  if (!hold_those_with_remains(folders)) return {};
  for (;;) {
    Folders held;
    std::ranges::copy_if(folders, std::back_inserter(held), [](const auto &folder) { return folder->is_held(); });
    const FoldersLock lock(held, wait);
    // A writer locks all its folders before it makes a temporary in any. So its others show now.
    if (!hold_those_with_remains(folders)) return recover(folders, clean_up);
  }
}

}  // namespace

Recovered recover(const Folders &folders, CleanUp clean_up) { return Recovery(folders, clean_up).run(); }

Recovered recover(const std::vector<std::string> &paths, CleanUp clean_up, const LockWait &wait) {
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
    result = recover_many(std::move(folders), clean_up, wait);
  } catch (const FolderLocked &locked) {
    result.left_count = 1;
    notes.push_back(base::text(locked.what(), "; nothing is cleaned up"));
  }
  result.notes.insert(result.notes.begin(), notes.begin(), notes.end());
  return result;
}

}  // namespace tandem::files
