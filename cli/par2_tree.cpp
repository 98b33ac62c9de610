// SPDX-License-Identifier: Apache-2.0
// tandem par2 sync, tandem par2 scrub: a set in each folder of a tree.
//
// A set is one file, so that one rename replaces it: a kill leaves the old set or the new one. Its time is that at
// which its making began. So a file has changed since then if its time is not before that.
#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/descriptor.hpp"
#include "cli/option_table.hpp"
#include "cli/par2.hpp"
#include "cli/sets.hpp"
#include "cli/verify_times.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kSet = ".tandem.par2", *kNew = ".tandem.new";
constexpr std::string_view kEnding = ".par2";

struct TreeFlags {
  std::string root, redundancy;
  std::vector<std::string> excluded;
  std::uint64_t memory_bytes = 0, rate_bytes_per_second = 0;
  double oldest_part = 0;  // 0: all
  bool one_file_system = false, dry_run = false, force = false, no_verify = false, repair = false, no_sync = false;
  OutputFlags output;
  ContextFlags context;
};

// A set or a folder with its result: one of the words that the command counts.
struct Outcome {
  const char *word;
  int exit_status;
};

[[noreturn]] void fail_io(const char *what, const std::string &path) {
  fail(kExitInputOutput, "cannot ", what, " ", path, ": ", std::strerror(errno));
}

std::string in(const std::string &folder, std::string_view name) { return (fs::path(folder) / name).string(); }

std::optional<struct stat> status_of(const std::string &path) {
  struct stat status;
  if (lstat(path.c_str(), &status) == 0) return status;
  if (errno != ENOENT) fail_io("look at", path);
  return {};
}

bool is_before(const timespec &a, const timespec &b) {
  return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
}

// Since the set of this time was made; `bytes` is what the set says.
bool has_changed(const struct stat &file, std::uint64_t bytes, const timespec &set_time) {
  return static_cast<std::uint64_t>(file.st_size) != bytes || !is_before(file.st_mtim, set_time);
}

// One process at a time makes or repairs a set. A file system without locks has none.
class LockedFolder {
 public:
  LockedFolder(const std::string &folder, bool is_writer)
      : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!folder_) fail_io("open", folder);
    flock(folder_.get(), is_writer ? LOCK_EX : LOCK_SH);
  }
  bool sync() const noexcept { return fsync(folder_.get()) == 0; }

 private:
  base::Descriptor folder_;
};

// ---- the tree

bool is_excluded(const TreeFlags &flags, const std::string &path) {
  const fs::path whole(path);
  const std::string relative = whole.lexically_relative(flags.root).string(), name = whole.filename().string();
  return std::ranges::any_of(flags.excluded, [&](const std::string &glob) {
    return fnmatch(glob.c_str(), (glob.find('/') != std::string::npos ? relative : name).c_str(), FNM_PATHNAME) == 0;
  });
}

Places folders_of(TreeFlags &flags) {
  const fs::path given(flags.root);
  if (!given.has_filename()) flags.root = given.parent_path().string();  // as places_of names it
  struct stat root;
  if (stat(flags.root.c_str(), &root) != 0) fail_io("open", flags.root);
  if (!S_ISDIR(root.st_mode)) fail(kExitWrongUsage, flags.root + " is no folder");
  SetFlags set;
  set.paths = {flags.root};
  set.recursive = true;
  return places_of(set, [&](const std::string &folder) {
    struct stat status;
    return !is_excluded(flags, folder) &&
           (!flags.one_file_system || lstat(folder.c_str(), &status) != 0 || status.st_dev == root.st_dev);
  });
}

std::vector<std::string> names_of(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) fail(kExitInputOutput, "cannot list ", folder, ": ", error.message());
  std::ranges::sort(names);
  return names;
}

bool is_of_new_set(const std::string &name) {
  return name.starts_with(std::string(kNew) + ".") || name.starts_with("." + std::string(kNew) + ".");
}

// Runs `body` for each path, and prints the counts of its outcomes.
int run_each(const char *command, const TreeFlags &flags, const Places &places, const std::vector<std::string> &paths,
             const std::vector<const char *> &words,
             const std::function<std::optional<Outcome>(const std::string &path, const std::string &action,
                                                        Json &object)> &body) {
  std::map<std::string_view, std::uint64_t> counts;
  Json objects = Json::array(), totals = Json::object();
  int worst = places.all_read() ? kExitDone : kExitInputOutput;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Json object = {{"command", command}, {"path", paths[i]}};
    std::optional<Outcome> outcome;
    try {
      outcome = body(paths[i], fmt::format("{} {}/{}", command, i + 1, paths.size()), object);
    } catch (const Failure &failure) {
      if (caught_signal() != 0) throw;
      complain(paths[i], ": ", failure.message);
      object.update(failure_object(failure));
      outcome = Outcome{"failed", failure.exit_status};
    }
    if (!outcome) continue;
    ++counts[outcome->word];
    worst = std::max(worst, outcome->exit_status);
    object["exit_status"] = outcome->exit_status;
    object["outcome"] = outcome->word;
    objects.push_back(std::move(object));
  }
  std::vector<std::string> texts;
  for (const char *word : words) {
    totals[fmt::format("{}_count", word)] = counts[word];
    if (counts[word] != 0) texts.push_back(fmt::format("{} {}", counts[word], word));
  }
  if (!flags.output.json && !flags.output.quiet)
    fmt::print("{}{}{}\n", plural(objects.size(), "set"), texts.empty() ? "" : ": ", fmt::join(texts, ", "));
  if (flags.output.json) print_sets(command, std::move(objects), std::move(totals), worst, places.all_read());
  return worst;
}

// ---- sync

using Files = std::map<std::string, struct stat>;

Files files_of(const std::string &folder, const TreeFlags &flags) {
  Files files;
  for (const std::string &name : names_of(folder)) {
    if (name == kSet || is_of_new_set(name) || is_excluded(flags, in(folder, name))) continue;
    const auto status = status_of(in(folder, name));
    if (status && S_ISREG(status->st_mode)) files.emplace(name, *status);
  }
  return files;
}

// Of a set that is not complete: what a killed process left, and later what this one leaves.
class Temporaries {
 public:
  explicit Temporaries(std::string folder) : folder_(std::move(folder)) { remove(); }
  Temporaries(const Temporaries &) = delete;
  Temporaries &operator=(const Temporaries &) = delete;
  ~Temporaries() { remove(); }

  void remove() const noexcept {
    try {
      for (const std::string &name : names_of(folder_))
        if (is_of_new_set(name)) fs::remove(in(folder_, name));
    } catch (...) {  // the next sync tries again
    }
  }

 private:
  const std::string folder_;
};

Par2Report report_of(const std::string &set, const TreeFlags &flags, const std::string &action, bool packets_only) {
  auto options = sized<tandem_par2_verify_options>();
  options.path = set.c_str();
  options.thread_count = flags.context.thread_count;
  options.packets_only = packets_only;
  options.rate_bytes_per_second = flags.rate_bytes_per_second;
  return verify_par2(options, action, flags.output);
}

// Nothing if no description is intact: then nothing is lost with it.
std::optional<Par2Report> description_of(const std::string &set, const TreeFlags &flags, const std::string &action) {
  try {
    return report_of(set, flags, action, true);
  } catch (const Failure &failure) {
    if (failure.status != TANDEM_ERROR_DAMAGED) throw;
    complain("note: ", set, ": ", failure.message);
    return {};
  }
}

// Slices of a page or more, if a file is as large: smaller ones would have more checksums than data.
void choose_slices(const Files &files, tandem_par2_create_options &options) {
  constexpr std::uint64_t kSlices = 2000, kLeastBytes = 4096;
  std::uint64_t all = 0, largest = 0;
  for (const auto &[name, status] : files) {
    all += static_cast<std::uint64_t>(status.st_size);
    largest = std::max(largest, static_cast<std::uint64_t>(status.st_size));
  }
  if (largest != 0 && all < kSlices * kLeastBytes && files.size() + kSlices <= TANDEM_PAR2_MAX_SLICES)
    options.slice_bytes = std::min(kLeastBytes, (largest + 3) / 4 * 4);
  else
    options.slice_count =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(2 * files.size(), kSlices, TANDEM_PAR2_MAX_SLICES));
}

void make_set(const std::string &folder, const LockedFolder &locked, const Files &files, const TreeFlags &flags,
              const ContextOwner &context, const std::string &action, Json &object) {
  const Temporaries temporaries(folder);
  const std::string base = in(folder, kNew), index = base + std::string(kEnding);
  struct stat begun;  // by the clock of the file system
  const base::Descriptor file(open(index.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file || fstat(file.get(), &begun) != 0) fail_io("make", index);
  std::vector<std::string> paths;
  for (const auto &[name, status] : files) paths.push_back(in(folder, name));
  const std::vector<const char *> sources = pointers(paths);
  auto options = sized<tandem_par2_create_options>();
  options.path = base.c_str();
  options.source_paths = sources.data();
  options.source_count = sources.size();
  options.recovery_percent = redundancy_percent(flags.redundancy);
  options.volumes = TANDEM_PAR2_UNIFORM;
  options.volume_count = 1;
  options.thread_count = flags.context.thread_count;
  options.memory_bytes = flags.memory_bytes;
  options.force = 1;
  options.no_sync = flags.no_sync;
  choose_slices(files, options);
  auto result = sized<tandem_par2_create_result>();
  run_with_progress(action, flags.output, options,
                    [&] { return tandem_par2_create(context.get(), &options, &result); });
  std::string made = index;  // without recovery slices, if all files are empty
  for (const std::string &name : names_of(folder))
    if (name.starts_with(std::string(kNew) + ".vol")) made = in(folder, name);
  const timespec times[2] = {{0, UTIME_OMIT}, begun.st_mtim};
  if (utimensat(AT_FDCWD, made.c_str(), times, 0) != 0 || rename(made.c_str(), in(folder, kSet).c_str()) != 0)
    fail_io("write", in(folder, kSet));
  temporaries.remove();
  if (!flags.no_sync && !locked.sync()) fail_io("sync", folder);
  object.update(set_object(result));
  object["packet_file_count"] = 1;
  object["packet_file_bytes"] = status_of(in(folder, kSet)).value().st_size;
}

std::optional<Outcome> sync_folder(const std::string &folder, const TreeFlags &flags, const ContextOwner &context,
                                   const std::string &action, Json &object) {
  const LockedFolder locked(folder, !flags.dry_run);
  const std::string set = in(folder, kSet);
  const Files files = files_of(folder, flags);
  const auto old = status_of(set);
  const auto say = [&](std::string_view what) {
    if (!flags.output.quiet && !flags.output.json) fmt::print("{}: {}\n", printable(folder), what);
  };
  if (files.empty()) {
    if (!old) return {};
    if (!flags.dry_run && unlink(set.c_str()) != 0) fail_io("remove", set);
    say("no file is left: set removed");
    return Outcome{"removed", kExitDone};
  }
  std::optional<Par2Report> described;
  if (old) described = description_of(set, flags, action);
  std::uint64_t added = files.size(), changed = 0, removed = 0;
  std::set<std::string> unchanged;
  if (described) {
    for (const tandem_par2_file &file : described->files) {
      const auto now = files.find(file.name);
      const bool is_there = now != files.end();
      added -= is_there;
      removed += !is_there;
      if (!is_there) continue;
      const bool is_changed = has_changed(now->second, file.bytes, old->st_mtim);
      changed += is_changed;
      if (!is_changed) unchanged.insert(file.name);
    }
    if (added + changed + removed == 0 && !flags.force) return Outcome{"unchanged", kExitDone};
  }
  object.update({{"added_count", added}, {"changed_count", changed}, {"removed_count", removed}});
  if (!unchanged.empty() && !flags.no_verify && !flags.dry_run) {
    const Par2Report found = report_of(set, flags, action, false);
    std::vector<std::string> damaged;
    for (const tandem_par2_file &file : found.files)
      if (file.state != TANDEM_PAR2_COMPLETE && file.state != TANDEM_PAR2_UNREADABLE && unchanged.contains(file.name))
        damaged.emplace_back(file.name);
    if (!damaged.empty()) {
      object["damaged"] = damaged;
      complain(folder, ": the set stays: ", plural(damaged.size(), "file"),
               " damaged, and no newer than the set; the first: ", damaged[0], "; ", what_is_lost(found.summary));
      return Outcome{"refused", exit_status_of(found.summary)};
    }
  }
  if (!flags.dry_run) make_set(folder, locked, files, flags, context, action, object);
  say(fmt::format("{} added, {} changed, {} removed: set {}", added, changed, removed, old ? "replaced" : "made"));
  return Outcome{old ? "replaced" : "made", kExitDone};
}

int sync_tree(TreeFlags flags) {
  redundancy_percent(flags.redundancy);  // refuses
  const Places places = folders_of(flags);
  const ContextOwner context = make_context(flags.context);
  return run_each("par2 sync", flags, places, places.folders,
                  {"made", "replaced", "unchanged", "removed", "refused", "failed"},
                  [&](const std::string &folder, const std::string &action, Json &object) {
                    return sync_folder(folder, flags, context, action, object);
                  });
}

// ---- scrub

// One file of each set in the folder: "a.par2", or "a.vol0+1.par2" without it.
std::vector<std::string> sets_in(const std::string &folder, const TreeFlags &flags) {
  std::map<std::string, std::string> sets;
  for (const std::string &name : names_of(folder)) {
    if (!name.ends_with(kEnding) || is_of_new_set(name) || is_excluded(flags, in(folder, name))) continue;
    const auto status = status_of(in(folder, name));
    if (!status || !S_ISREG(status->st_mode)) continue;
    const std::string base = base_of_set(name);
    if (const auto [entry, is_new] = sets.emplace(base, name); !is_new && name == base + std::string(kEnding))
      entry->second = name;
  }
  std::vector<std::string> paths;
  for (const auto &[base, name] : sets) paths.push_back(in(folder, name));
  return paths;
}

Outcome scrub_set(const std::string &path, const TreeFlags &flags, const ContextOwner &context,
                  const std::string &action, Json &object) {
  const std::string folder = fs::path(path).parent_path().string();
  const LockedFolder locked(folder, flags.repair);
  const auto set = status_of(path);
  if (!set) fail(kExitInputOutput, "the set is gone");
  Par2Report report = report_of(path, flags, action, false);
  std::uint64_t changed = 0, damaged = 0, missing = 0;
  const auto count = [&] {
    changed = damaged = missing = 0;
    for (const tandem_par2_file &file : report.files) {
      if (file.state == TANDEM_PAR2_COMPLETE || file.state == TANDEM_PAR2_UNREADABLE) continue;
      const auto now = status_of(in(folder, file.name));
      (!now ? missing : has_changed(*now, file.bytes, set->st_mtim) ? changed : damaged)++;
    }
  };
  count();
  if (flags.repair && changed == 0 && report.summary.repair_needed != 0 && report.summary.repair_possible != 0) {
    auto options = sized<tandem_par2_repair_options>();
    options.memory_bytes = flags.memory_bytes;
    options.thread_count = flags.context.thread_count;
    options.no_sync = flags.no_sync;
    repair_par2(report, options, context, action, flags.output);
    count();
  }
  complain_of_unreadable(report);
  const tandem_par2_summary &summary = report.summary;
  object.update(report_object(report, "par2 scrub"));
  object["changed_count"] = changed;
  object.erase("command");
  int exit_status = exit_status_of(summary);
  if (summary.damaged_packet_bytes != 0) exit_status = std::max<int>(exit_status, kExitDamageFound);
  if (!flags.output.json && !flags.output.quiet) {
    std::vector<std::string> parts;
    for (const auto &[number, what] : {std::pair<std::uint64_t, const char *>(summary.repaired_count, "repaired"),
                                       {changed, "changed since the set was made"},
                                       {damaged, "damaged"},
                                       {missing, "missing"},
                                       {summary.unreadable_count, "cannot be read"},
                                       {summary.damaged_packet_bytes, "bytes of the set damaged"}})
      if (number != 0) parts.push_back(fmt::format("{} {}", number, what));
    if (!parts.empty()) fmt::print("{}: {}; {}\n", printable(path), fmt::join(parts, ", "), what_is_lost(summary));
  }
  return {exit_status == kExitDone          ? "complete"
          : exit_status == kExitDamageFound ? "recoverable"
          : exit_status == kExitInputOutput ? "failed"
                                            : "lost",
          exit_status};
}

// The path with spaces, control characters and % escaped: a key of VerifyTimes.
std::string key_of(const std::string &path) {
  std::string key;
  for (const unsigned char c : fs::weakly_canonical(path).string())
    key += c <= ' ' || c == '%' || c == 0x7f ? fmt::format("%{:02X}", c) : std::string(1, static_cast<char>(c));
  return key;
}

// Of the files that a set protects. 1 if that cannot be read: such a set has its turn, too.
std::uint64_t bytes_of_set(const std::string &path, const TreeFlags &flags) {
  std::uint64_t bytes = 0;
  try {
    for (const tandem_par2_file &file : report_of(path, flags, "par2 scrub", true).files) bytes += file.bytes;
  } catch (const Failure &) {
    if (caught_signal() != 0) throw;
  }
  return std::max<std::uint64_t>(bytes, 1);
}

int scrub_tree(TreeFlags flags) {
  Places places = folders_of(flags);
  const ContextOwner context = make_context(flags.context);
  std::vector<std::string> paths;
  for (const std::string &folder : places.folders) {
    try {
      std::ranges::copy(sets_in(folder, flags), std::back_inserter(paths));
    } catch (const Failure &failure) {
      complain("note: ", failure.message);
      places.folders_read = false;
    }
  }
  if (paths.empty())
    fail(kExitInputOutput, flags.root, " has no PAR2 set; `", program_name(), " par2 sync` makes them");
  std::optional<VerifyTimes> times;
  std::map<std::string, std::string> keys;  // by path
  if (flags.oldest_part != 0) {
    times.emplace();
    std::vector<VerifyTimes::Set> sets;
    for (const std::string &path : paths) sets.push_back({keys[path] = key_of(path), bytes_of_set(path, flags)});
    const std::set<std::string> oldest = times->oldest(sets, flags.oldest_part);
    std::erase_if(paths, [&](const std::string &path) { return !oldest.contains(keys[path]); });
  }
  return run_each("par2 scrub", flags, places, paths, {"complete", "recoverable", "lost", "failed"},
                  [&](const std::string &path, const std::string &action, Json &object) {
                    if (times && !times->set_now(keys[path])) complain("note: the time of this check cannot be kept");
                    return scrub_set(path, flags, context, action, object);
                  });
}

void add_tree_flags(CLI::App &command, TreeFlags &flags) {
  command.add_option("DIR", flags.root, "The folder; all folders below it too")->required();
  command
      .add_option("--exclude", flags.excluded,
                  "Leave out files and folders with such names, or if it has a /, paths below DIR (repeatable)")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command.add_flag("--one-file-system", flags.one_file_system, "Leave out folders of other file systems");
  add_memory_flag(command, flags.memory_bytes);
  add_no_sync_flag(command, flags.no_sync);
  add_context_flags(command, flags.context);
  add_output_flags(command, flags.output);
}

}  // namespace

void add_par2_sync(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<TreeFlags>();
  CLI::App &command = *par2.add_subcommand("sync", "Keep a set in each folder of a tree, for the files in that folder");
  add_redundancy_flag(command, flags->redundancy);
  command.add_flag("--force", flags->force, "Make all sets anew: for another redundancy, or if a set is damaged");
  command.add_flag("--dry-run", flags->dry_run, "Only say which sets would be made, replaced or removed");
  command.add_flag(
      "--no-verify", flags->no_verify,
      "Do not check unchanged files before their set is replaced: damage in them may be taken for content");
  command.footer(fmt::format(
      "Sets are called {}. Exit status: 0 all is protected, 1 or 4 a set stays because files are damaged (1: `tandem\n"
      "par2 scrub --repair` may mend them), 3 something could not be read or written.",
      kSet));
  add_tree_flags(command, *flags);
  command.callback([flags, &invocation] { invocation.run = [flags] { return sync_tree(*flags); }; });
}

void add_par2_scrub(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<TreeFlags>();
  CLI::App &command = *par2.add_subcommand("scrub", "Check the files of all sets in a tree");
  command.add_flag("--repair", flags->repair,
                   "Repair files; not in sets of which a file has changed since the set was made");
  add_part_flags(command, flags->rate_bytes_per_second, &flags->oldest_part);
  command.footer(
      "Exit status: 0 all sets and their files are complete, 1 a repair is possible, 3 something could not be read, 4 "
      "a\n"
      "repair is not possible. The worst counts.");
  add_tree_flags(command, *flags);
  command.callback([flags, &invocation] { invocation.run = [flags] { return scrub_tree(*flags); }; });
}

}  // namespace tandem::cli
