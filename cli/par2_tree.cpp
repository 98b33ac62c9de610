// SPDX-License-Identifier: Apache-2.0
// tandem par2 sync, tandem par2 scrub: a set in each folder of a tree.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "cli/option_table.hpp"
#include "cli/par2.hpp"
#include "cli/sets.hpp"
#include "cli/verify_times.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

struct TreeFlags {
  std::string root, redundancy;
  std::vector<std::string> excluded, accepted;
  tandem_par2_tree_options options = sized<tandem_par2_tree_options>();
  double oldest_part = 0;  // 0: all
  bool no_sync = false, verbose = false, json_lines = false;
  OutputFlags output;
  ContextFlags context;
};

// By enum tandem_par2_event_value.
constexpr const char *kOutcomes[] = {"",         "unchanged", "made",        "replaced", "removed", "kept",
                                     "complete", "outdated",  "recoverable", "lost",     "absent",  "failed"};
constexpr const char *kFileStates[] = {"right",      "added",   "changed",     "suspect", "gone",
                                       "unreadable", "packets", "unprotected", "repaired"};

// The path with spaces, control characters and % escaped: a key of VerifyTimes.
std::string key_of(const std::string &path) {
  std::string key;
  for (const unsigned char c : fs::weakly_canonical(path).string())
    key += c <= ' ' || c == '%' || c == 0x7f ? fmt::format("%{:02X}", c) : std::string(1, static_cast<char>(c));
  return key;
}

// Prints what a call finds and does.
class TreeReport {
 public:
  TreeReport(const char *command, const TreeFlags &flags)
      : command_(command),
        flags_(flags),
        is_json_(flags.output.json || flags.json_lines),
        is_sync_(command == std::string("par2 sync")),
        is_dry_(flags.options.dry_run != 0) {
    if (is_sync_) more_ = {{"dry_run", is_dry_}};
  }

  int run(const ContextOwner &context) {
    const std::vector<const char *> excluded = pointers(flags_.excluded), accepted = pointers(flags_.accepted);
    tandem_par2_tree_options options = flags_.options;
    options.action = is_sync_ ? TANDEM_PAR2_SYNC : TANDEM_PAR2_SCRUB;
    options.path = flags_.root.c_str();
    options.excluded_globs = excluded.data();
    options.excluded_count = excluded.size();
    options.accepted_paths = accepted.data();
    options.accepted_count = accepted.size();
    options.thread_count = flags_.context.thread_count;
    options.no_sync = flags_.no_sync;
    options.report = [](void *user, const tandem_par2_event *event) {
      return static_cast<TreeReport *>(user)->guarded([&](TreeReport &self) { return self.hear(*event); });
    };
    options.progress = [](void *user, std::uint64_t done, std::uint64_t total) {
      return static_cast<TreeReport *>(user)->guarded([&](TreeReport &self) {
        return self.progress_ ? Progress::callback(&*self.progress_, done, total) : std::int32_t{caught_signal() != 0};
      });
    };
    options.report_user = options.progress_user = this;
    if (flags_.oldest_part != 0) {  // the first call only lists the sets
      times_.emplace();
      call(context, options);
      oldest_ = times_->oldest(sets_, flags_.oldest_part);
      is_listed_ = true;
    }
    const int exit_status = call(context, options);
    progress_.reset();
    finish(exit_status);
    return exit_status;
  }

 private:
  // An exception must not pass through the library.
  template <class Body>
  std::int32_t guarded(const Body &body) noexcept {
    try {
      return body(*this);
    } catch (...) {
      failure_ = std::current_exception();
      return -1;
    }
  }

  int call(const ContextOwner &context, const tandem_par2_tree_options &options) {
    std::int32_t severity = TANDEM_PAR2_FINE;
    const tandem_status status = tandem_par2_tree(context.get(), &options, &severity);
    if (failure_) std::rethrow_exception(failure_);
    check(status);
    return severity;
  }

  std::int32_t hear(const tandem_par2_event &event) {
    const bool only_lists = times_ && !is_listed_;
    all_read_ = all_read_ && event.severity != TANDEM_PAR2_UNREAD;
    if (event.what == TANDEM_PAR2_SET_BEGUN) {
      if (only_lists) sets_.push_back({key_of(event.path), std::max<std::uint64_t>(event.bytes, 1)});
      if (only_lists || (times_ && !oldest_.contains(key_of(event.path)))) return 1;
      if (times_) times_->set_now(key_of(event.path));
      progress_.reset();
      progress_.emplace(command_, flags_.output);
    } else if (!only_lists && event.what >= TANDEM_PAR2_FOLDER_UNREADABLE) {
      progress_.reset();
      hear_of_tree(event);
    } else if (!only_lists && event.what >= TANDEM_PAR2_FILE_RIGHT) {
      hear_of_file(event);
    } else if (!only_lists) {
      progress_.reset();
      hear_of_set(event);
    }
    return caught_signal() != 0 ? -1 : 0;
  }

  void hear_of_tree(const tandem_par2_event &event) {
    if (event.what == TANDEM_PAR2_FOLDER_UNREADABLE)
      complain("cannot read the folder ", event.path, ": ", event.message);
    else if (event.what == TANDEM_PAR2_ACCEPTED_NOTHING)
      complain("--accept ", event.path, " had no effect");
    else if (event.severity != TANDEM_PAR2_FINE)
      complain("the list of sets ", event.path, ": ", event.message);
    else if (!is_sync_ || event.message != nullptr)
      say("there is no list of sets ({}): nothing can be said about missing sets{}{}", printable(event.path),
          event.message != nullptr ? ": " : "", event.message != nullptr ? printable(event.message) : "");
  }

  void hear_of_file(const tandem_par2_event &event) {
    const char *state = kFileStates[event.what - TANDEM_PAR2_FILE_RIGHT];
    ++files_[event.what];
    if (event.what == TANDEM_PAR2_FILE_UNPROTECTED) unprotected_folders_.insert(fs::path(event.path).parent_path());
    if (flags_.verbose || (event.what != TANDEM_PAR2_FILE_RIGHT && event.what != TANDEM_PAR2_FILE_UNPROTECTED)) {
      Json object = {{"path", event.path}, {"state", state}};
      if (event.lost_slice_count != 0) object["lost_slice_count"] = event.lost_slice_count;
      if (event.message != nullptr) object["message"] = event.message;
      objects_.push_back(std::move(object));
    }
    if (event.what == TANDEM_PAR2_FILE_UNREADABLE)
      lines_.emplace_back(true, fmt::format("{} cannot be read: {}", event.path, event.message));
    else if (event.severity != TANDEM_PAR2_FINE && event.what != TANDEM_PAR2_FILE_UNPROTECTED)
      lines_.emplace_back(is_sync_, sentence(event));
    else if (flags_.verbose || event.what == TANDEM_PAR2_FILE_REPAIRED)
      lines_.emplace_back(false, fmt::format("{}: {}", event.path, state));
  }

  std::string sentence(const tandem_par2_event &event) const {
    const std::string path = event.path;
    const std::string mend = event.severity == TANDEM_PAR2_LOST
                                 ? " A repair is not possible"
                                 : fmt::format(" To mend it: {} par2 scrub --repair {}", program_name(), flags_.root);
    const std::string slices = event.lost_slice_count != 0 ? fmt::format(" ({} of {})", event.lost_slice_count,
                                                                         plural(event.slice_count, "slice"))
                                                           : "";
    if (event.what == TANDEM_PAR2_FILE_CHANGED)
      return fmt::format("{} is newer than its set{}. To protect it: {} par2 sync {}", path, slices, program_name(),
                         flags_.root);
    const std::string what = event.what == TANDEM_PAR2_FILE_GONE
                                 ? event.message != nullptr ? "is excluded now" : "is gone"
                             : slices.empty() ? "differs from its set, and is not newer"
                                              : "is damaged" + slices;
    if (!is_sync_) return fmt::format("{} {}.{}", path, what, mend);
    return fmt::format("{} {}. The old set {} kept.{}; if this is meant: {} par2 sync {} {}", path, what,
                       is_dry_ ? "would be" : "was", mend, program_name(), "--accept " + path, flags_.root);
  }

  void hear_of_set(const tandem_par2_event &event) {
    const std::string outcome = kOutcomes[event.what], path = event.path,
                      folder = fs::path(path).parent_path().string();
    ++outcomes_[outcome];
    ++set_count_;
    Json object = {{"command", command_}, {"path", is_sync_ && event.what != TANDEM_PAR2_SET_ABSENT ? folder : path}};
    if (is_sync_) object["set"] = path;
    object["outcome"] = outcome;
    object.update(more_);
    object["exit_status"] = event.severity;
    if (event.message != nullptr) object["message"] = event.message;
    for (const auto &[what, key] : {std::pair(TANDEM_PAR2_FILE_ADDED, "added_count"),
                                    {TANDEM_PAR2_FILE_CHANGED, "changed_count"},
                                    {TANDEM_PAR2_FILE_GONE, "removed_count"},
                                    {TANDEM_PAR2_FILE_SUSPECT, "damaged_count"},
                                    {TANDEM_PAR2_FILE_UNREADABLE, "unreadable_count"},
                                    {TANDEM_PAR2_FILE_REPAIRED, "repaired_count"}})
      object[key] = files_[what];
    if (event.slice_count != 0 || event.file_count != 0) {
      object.update({{"file_count", event.file_count},
                     {"bytes", event.bytes},
                     {"slice_count", event.slice_count},
                     {"recovery_slice_count", event.recovery_slice_count}});
      object[is_sync_ ? "recovery_percent" : "lost_slice_count"] =
          is_sync_ ? Json(event.recovery_percent) : Json(event.lost_slice_count);
    }
    object["files"] = std::exchange(objects_, Json::array());
    print_lines();
    print_set(event, is_sync_ ? folder : path);
    std::erase_if(files_, [](const auto &each) {
      return each.first != TANDEM_PAR2_FILE_UNPROTECTED && each.first != TANDEM_PAR2_FILE_IS_PACKETS;
    });
    if (flags_.json_lines)
      print_line(std::move(object));
    else if (flags_.output.json)
      sets_json_.push_back(std::move(object));
  }

  void print_lines() {
    for (const auto &[is_complaint, line] : std::exchange(lines_, {}))
      is_complaint ? complain(line) : say("{}", printable(line));
  }

  void print_set(const tandem_par2_event &event, const std::string &place) {
    const std::string message = event.message != nullptr ? event.message : "";
    const bool is_more = fs::path(event.path).filename() == ".tandem-more.par2";
    const bool is_made = event.what == TANDEM_PAR2_SET_MADE || event.what == TANDEM_PAR2_SET_REPLACED;
    if (event.what == TANDEM_PAR2_SET_ABSENT)
      complain(event.path, " is not there, but the list of sets has it. If this is meant: ", program_name(),
               " par2 sync --accept-removed ", flags_.root);
    else if (is_sync_ || event.what == TANDEM_PAR2_SET_FAILED)
      if (!message.empty())
        complain(is_made ? event.path : place,
                 !is_made  ? ": "
                 : is_dry_ ? " would be made anew: "
                           : " is made anew: ",
                 message);
    if (event.what == TANDEM_PAR2_SET_REMOVED)
      say("{}: no file is left: {}", printable(place), is_dry_ ? "would remove set" : "set removed");
    const std::string set = is_more ? "second set" : "set", done = kOutcomes[event.what];
    if (is_made)
      say("{}: {} added, {} changed, {} removed: {}, {:g}%", printable(place), files_[TANDEM_PAR2_FILE_ADDED],
          files_[TANDEM_PAR2_FILE_CHANGED], files_[TANDEM_PAR2_FILE_GONE],
          !is_dry_ ? set + " " + done : (done == "made" ? "would make " : "would replace ") + set,
          event.recovery_percent);
    if (!is_sync_ && event.file_count != 0 &&
        (event.severity != TANDEM_PAR2_FINE || files_[TANDEM_PAR2_FILE_REPAIRED] != 0 || !message.empty()))
      say("{}: {}{}{} of {} lost, {}{}", printable(event.path), message, message.empty() ? "" : "; ",
          event.lost_slice_count, plural(event.slice_count, "slice"),
          plural(event.recovery_slice_count, "recovery slice"),
          event.what == TANDEM_PAR2_SET_OUTDATED ? ": the set is older than its files"
          : event.lost_slice_count == 0          ? ""
          : event.what == TANDEM_PAR2_SET_LOST   ? ": a repair is not possible"
                                                 : ": a repair is possible");
  }

  void finish(int exit_status) {
    Json totals = Json::object();
    std::vector<std::string> texts;
    const auto words =
        is_sync_ ? std::vector<std::string>{"made", "replaced", "unchanged", "removed", "kept", "absent", "failed"}
                 : std::vector<std::string>{"complete", "outdated", "recoverable", "lost", "absent", "failed"};
    for (const std::string &word : words) {
      totals[word + "_count"] = outcomes_[word];
      const bool is_change = word == "made" || word == "replaced" || word == "removed";
      if (outcomes_[word] != 0)
        texts.push_back(fmt::format("{} {}{}", outcomes_[word], is_dry_ && is_change ? "would be " : "", word));
    }
    const std::uint64_t unprotected = files_[TANDEM_PAR2_FILE_UNPROTECTED],
                        packets = files_[TANDEM_PAR2_FILE_IS_PACKETS];
    if (!is_sync_)
      totals.update(
          {{"unprotected_file_count", unprotected}, {"unprotected_folder_count", unprotected_folders_.size()}});
    if (is_sync_) totals["packet_file_count"] = packets;
    print_lines();
    if (packets != 0) say("{} of other sets left out", plural(packets, "packet file"));
    if (unprotected != 0)
      say("{} in {} {} in no set: {} par2 sync {}", plural(unprotected, "file"),
          plural(unprotected_folders_.size(), "folder"), unprotected == 1 ? "is" : "are", program_name(),
          printable(flags_.root));
    say("{}{}{}", plural(set_count_, "set"), texts.empty() ? "" : ": ", fmt::join(texts, ", "));
    if (flags_.json_lines) {
      Json object = {{"command", command_},
                     {"exit_status", exit_status},
                     {"all_read", all_read_},
                     {"totals", std::move(totals)},
                     {"files", std::move(objects_)}};
      object.update(more_);
      print_line(std::move(object));
    } else if (flags_.output.json) {
      totals["files"] = std::move(objects_);
      print_sets(command_, std::move(sets_json_), std::move(totals), exit_status, all_read_, more_);
    }
  }

  static void print_line(Json object) { fmt::print("{}\n", Json::parse(json_text(std::move(object))).dump()); }

  template <class... Values>
  void say(fmt::format_string<Values...> format, Values &&...values) const {
    if (!is_json_ && !flags_.output.quiet) fmt::print("{}\n", fmt::format(format, std::forward<Values>(values)...));
  }

  const char *const command_;
  const TreeFlags &flags_;
  const bool is_json_, is_sync_, is_dry_;
  Json more_ = Json::object();  // in each object
  std::optional<Progress> progress_;
  std::exception_ptr failure_;
  std::optional<VerifyTimes> times_;  // with --oldest
  std::vector<VerifyTimes::Set> sets_;
  std::set<std::string> oldest_;
  bool is_listed_ = false, all_read_ = true;
  std::vector<std::pair<bool, std::string>> lines_;  // of files, until their set is done; true: for standard error
  std::map<std::int32_t, std::uint64_t> files_;      // by event
  std::map<std::string, std::uint64_t> outcomes_;
  std::set<fs::path> unprotected_folders_;
  std::uint64_t set_count_ = 0;
  Json objects_ = Json::array(), sets_json_ = Json::array();
};

void add_switch(CLI::App &command, const char *name, std::int32_t &option, const char *help) {
  command.add_flag_callback(
      name, [&option] { option = 1; }, help);
}

void add_tree_flags(CLI::App &command, TreeFlags &flags) {
  command.add_option("DIR", flags.root, "The folder; all folders below it too")->required();
  command
      .add_option("--exclude", flags.excluded,
                  "Leave out files and folders with such names, or if it has a /, paths below DIR (repeatable)")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  add_switch(command, "--one-file-system", flags.options.one_file_system, "Leave out folders of other file systems");
  command
      .add_option("--lock-wait", flags.options.lock_wait_seconds,
                  "Seconds to wait for a folder that another process has locked (flock); default: 60")
      ->check(CLI::Range(std::uint32_t{1}, UINT32_MAX))
      ->group(kExpert);
  command.add_flag("--verbose", flags.verbose, "Also name files that are right");
  command.add_flag("--json-lines", flags.json_lines, "Print a JSON object on a line for each set, and one for all");
  add_memory_flag(command, flags.options.memory_bytes);
  add_no_sync_flag(command, flags.no_sync);
  add_context_flags(command, flags.context, CodesOn::cpu);
  add_output_flags(command, flags.output);
}

int run_tree(const char *command, const TreeFlags &flags) {
  const ContextOwner context = make_context(flags.context);
  return TreeReport(command, flags).run(context);
}

}  // namespace

void add_par2_sync(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<TreeFlags>();
  CLI::App &command = *par2.add_subcommand("sync", "Keep a set in each folder of a tree, for the files in that folder");
  command
      .add_option(
          "-r,--redundancy", flags->redundancy,
          "Recovery slices as a part of the slices, of all sets; default: a set keeps its own, a new one has 5%")
      ->type_name("PERCENT");
  command
      .add_option("--accept", flags->accepted,
                  "The present content of this file is meant, or that it, or a set, is gone (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_switch(command, "--accept-removed", flags->options.accept_removed,
             "Files and sets that are gone are meant to be gone");
  add_switch(command, "--accept-many", flags->options.accept_many,
             "More than a tenth of a folder's files (or 10) may be removed or rewritten at once");
  add_switch(command, "--force", flags->options.force, "Make all sets anew, also sets that cannot be read");
  add_switch(command, "--dry-run", flags->options.dry_run, "Only say which sets would be made, replaced or removed");
  add_switch(command, "--no-verify", flags->options.no_verify,
             "Do not check unchanged files before their set is replaced: damage in them may be taken for content");
  command.footer(
      "Sets are called .tandem.par2. Exit status: 0 all is protected, 1 something needs attention: a set stays because "
      "of\n"
      "files that are damaged or gone, 3 something could not be read or written, 4 damage cannot be repaired.");
  add_tree_flags(command, *flags);
  command.callback([flags, &invocation] {
    invocation.run = [flags] {
      if (!flags->redundancy.empty()) flags->options.recovery_percent = redundancy_percent(flags->redundancy);
      return run_tree("par2 sync", *flags);
    };
  });
}

void add_par2_scrub(CLI::App &par2, Invocation &invocation) {
  const auto flags = std::make_shared<TreeFlags>();
  CLI::App &command = *par2.add_subcommand("scrub", "Check the files of all sets in a tree");
  add_switch(command, "--repair", flags->options.repair, "Repair files, but none that is newer than its set says");
  add_part_flags(command, flags->options.rate_bytes_per_second, &flags->oldest_part);
  command.footer(
      "Exit status: 0 all files are in complete sets, 1 something needs attention: a repair is possible, or files or "
      "sets\n"
      "are not as sync left them, 3 something could not be read, 4 a repair is not possible. The worst counts.");
  add_tree_flags(command, *flags);
  command.callback([flags, &invocation] { invocation.run = [flags] { return run_tree("par2 scrub", *flags); }; });
}

}  // namespace tandem::cli
