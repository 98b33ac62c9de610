// SPDX-License-Identifier: Apache-2.0
#include "par2/folders.hpp"

#include <fcntl.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/bytes.hpp"
#include "base/options.hpp"
#include "base/pending_file.hpp"
#include "par2/files.hpp"
#include "par2/tree.hpp"

namespace tandem::par2 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListTitle = "# PAR2 sets below this folder; `tandem par2 sync` keeps this list\n";

// A line of the list: %HH stands for the byte of a control character, for '%', and for '#'.
std::string escaped(const std::string &path) {
  std::string text;
  for (const unsigned char c : path)
    text += c < ' ' || c == '%' || c == '#' ? "%" + base::digits(c, 16, 2) : std::string(1, char(c));
  return text;
}
// Its last line, which a list that was cut does not have.
std::string list_end(std::size_t count) { return text("# ", count, " in all\n"); }
std::string unescaped(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size();
    path +=
        is_escape ? static_cast<char>(std::strtoul(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16)) : text[i];
    i += is_escape ? 2 : 0;
  }
  return path;
}

}  // namespace

bool is_of_new_set(const std::string &name) {
  const std::string start = std::string(kNewName) + ".";
  return name.starts_with(start) || name.starts_with("." + start);
}

Look look_at(const File &file, const timespec &set_time, const struct stat &now) noexcept {
  const std::int64_t modified = nanoseconds_of(now.st_mtim);
  if (modified > file.modified_ns.value_or(nanoseconds_of(set_time) - 1)) return Look::newer;
  const bool is_same =
      static_cast<std::uint64_t>(now.st_size) == file.bytes && modified >= file.modified_ns.value_or(modified);
  return is_same ? Look::same : Look::other;
}

bool lacks_recovery_slices(const Set &set) noexcept {
  return set.recovery_percent != 0 && static_cast<double>(set.recovery.size()) <
                                          count_of(set.recovery_percent, static_cast<double>(set.slice_count));
}

tandem_par2_event event_of(std::int32_t what, const std::string &path, std::int32_t severity) {
  auto event = base::sized<tandem_par2_event>();
  event.path = path.c_str();
  event.what = what;
  event.severity = severity;
  return event;
}

Folders::Folders(const tandem_par2_tree_options &options) : options_(options) {
  if (options.path == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "path is NULL");
  const fs::path given(options.path);
  root_ = given.has_filename() || given == given.root_path() ? given.string() : given.parent_path().string();
  if (stat(root_.c_str(), &root_status_) != 0) fail_io("open", root_, errno);
  if (!S_ISDIR(root_status_.st_mode)) fail(TANDEM_ERROR_INVALID_ARGUMENT, root_, " is no folder");
  for (const std::string_view glob :
       base::read_strings(options.excluded_globs, options.excluded_count, "excluded_globs"))
    excluded_.emplace_back(glob);
  const fs::path root = fs::weakly_canonical(root_);
  for (const std::string_view path :
       base::read_strings(options.accepted_paths, options.accepted_count, "accepted_paths")) {
    // As the working folder names it; if that is not below the root, as the root does. Never both.
    const fs::path accepted = fs::absolute(path).lexically_normal();
    std::string inside;
    for (const fs::path &each :
         {fs::weakly_canonical(accepted.parent_path()) / accepted.filename(), (root / path).lexically_normal()})
      if (const std::string name = each.lexically_relative(root).string(); inside.empty() && is_safe_name(name))
        inside = name;
    if (inside.empty()) fail(TANDEM_ERROR_INVALID_ARGUMENT, path, " is no file below ", root_);
    accepted_.emplace(inside, false);
  }
  std::string problem;
  list_ = read_list(&problem);
  if (!list_)
    report(event_of(TANDEM_PAR2_NO_LIST, joined(root_, kListName),
                    problem.empty() ? TANDEM_PAR2_FINE : TANDEM_PAR2_UNREAD),
           problem);
}

bool Folders::report(tandem_par2_event event, const std::string &message) {
  if (!message.empty()) event.message = message.c_str();
  severity_ = std::max(severity_, event.severity);
  const std::int32_t answer = options_.report != nullptr ? options_.report(options_.report_user, &event) : 0;
  if (answer < 0) fail(TANDEM_ERROR_CANCELLED, "the report callback cancelled the call");
  return answer > 0;
}

std::string Folders::relative(const std::string &path) const {
  return fs::path(path).lexically_relative(root_).string();
}

bool Folders::is_accepted(const std::string &path, bool or_around) const {
  for (fs::path each = relative(path); !each.empty(); each = or_around ? each.parent_path() : fs::path())
    if (accepted_.contains(each.string())) return true;
  return false;
}

void Folders::note_accepted(const std::string &path) {
  for (fs::path each = relative(path); !each.empty(); each = each.parent_path())
    if (const auto found = accepted_.find(each.string()); found != accepted_.end()) found->second = true;
}

bool Folders::is_excluded(const std::string &path) const {
  const std::string below = relative(path), name = base::name_of(path);
  return std::ranges::any_of(excluded_, [&](const std::string &glob) {
    return fnmatch(glob.c_str(), (glob.find('/') != std::string::npos ? below : name).c_str(), FNM_PATHNAME) == 0;
  });
}

std::vector<std::string> Folders::all() {
  std::vector<std::string> found, left{root_};
  while (!left.empty()) {
    const std::string folder = found.emplace_back(std::move(left.back()));
    left.pop_back();
    std::vector<std::string> below;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::string path = joined(folder, entry->path().filename().string());
      struct stat status;
      if (lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && !is_excluded(path) &&
          (options_.one_file_system == 0 || status.st_dev == root_status_.st_dev))
        below.push_back(path);
    }
    if (error) {
      report(event_of(TANDEM_PAR2_FOLDER_UNREADABLE, folder, TANDEM_PAR2_UNREAD), base::error_text(error.value()));
      found.pop_back();
    }
    std::ranges::sort(below, std::ranges::greater());
    std::ranges::move(below, std::back_inserter(left));
  }
  return found;
}

Files Folders::files_in(const base::Folder &folder) const {
  Files files;
  for (const std::string &name : folder.names()) {
    if (name == kSetName || name == kMoreName || name == kListName || is_of_new_set(name) ||
        !name_of_temporary(name).empty() || is_excluded(folder.path_of(name)))
      continue;
    struct stat status;
    if (fstatat(folder.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) fail_io("look at", folder.path_of(name), errno);
    } else if (S_ISREG(status.st_mode)) {
      files.emplace(name, status);
    }
  }
  return files;
}

int Folders::reason_to_leave_out(const base::Folder &folder, const std::string &name) {
  const base::Descriptor file = folder.open_file(name, O_RDONLY);
  if (!file && base::is_out_of_resources(errno)) fail_io("open", folder.path_of(name), errno);
  if (!file) return errno;
  std::byte magic[sizeof kMagic];
  const std::int64_t got = base::read_at(file.get(), magic, sizeof magic, 0);
  if (got < 0) return errno;
  return got == sizeof magic && std::memcmp(magic, kMagic, sizeof magic) == 0 ? -1 : 0;
}

base::LockWait Folders::lock_wait() const {
  base::LockWait wait;
  if (options_.lock_wait_seconds != 0) wait.seconds = options_.lock_wait_seconds;
  wait.check_cancelled = [this] {
    if (options_.progress != nullptr && options_.progress(options_.progress_user, 0, 0) != 0)
      fail(TANDEM_ERROR_CANCELLED, "cancelled");
  };
  return wait;
}

tandem_par2_verify_options Folders::verify_options(const std::string &set, std::int32_t scope) const {
  auto options = base::sized<tandem_par2_verify_options>();
  options.path = set.c_str();
  options.thread_count = options_.thread_count;
  options.scope = scope;
  options.rate_bytes_per_second = scope != TANDEM_PAR2_ALL ? 0 : options_.rate_bytes_per_second;
  options.progress = options_.progress;
  options.progress_user = options_.progress_user;
  return options;
}

// Nothing: there is no list, or it is of no use, and `problem_out` says why.
std::optional<Names> Folders::read_list(std::string *problem_out) const {
  const base::Descriptor file = open_regular(joined(root_, kListName));
  int error = errno;
  std::string text(65536, 0);
  std::size_t bytes = 0;
  while (file) {
    const std::int64_t got =
        base::read_at(file.get(), reinterpret_cast<std::byte *>(text.data()) + bytes, text.size() - bytes, bytes);
    error = errno;
    if (got < 0) break;
    bytes += static_cast<std::size_t>(got);
    if (bytes < text.size()) {
      text.resize(bytes);
      Names names;
      for (std::optional<std::string_view> rest = text; rest;)
        if (const std::string_view line = base::cut(rest, "\n"); !line.empty() && !line.starts_with('#'))
          if (const std::string name = unescaped(line); is_safe_name(name)) names.insert(name);
      if (text.starts_with(kListTitle) && text.ends_with(list_end(names.size()))) return names;
      *problem_out = "it is damaged; remove it, and sync makes a new one";
      return {};
    }
    text.resize(2 * text.size());
  }
  if (error != ENOENT) *problem_out = base::error_text(error);
  return {};
}

void Folders::finish_list(bool writes) {
  try {
    std::optional<base::FoldersLock> lock;
    if (writes) {  // another call may have changed it since
      lock.emplace(base::Folders{std::make_shared<base::Folder>(root_)}, lock_wait());
      std::string problem;
      list_ = read_list(&problem);
      writes = problem.empty();
    }
    Names sets = there_;
    for (const std::string &name : list_.value_or(Names())) {
      const std::string path = joined(root_, name);
      struct stat status;
      if (there_.contains(name) || removed_.contains(name)) continue;
      const bool is_there = lstat(path.c_str(), &status) == 0;
      const bool is_gone = !is_there && (errno == ENOENT || errno == ENOTDIR);
      if (is_gone && is_accepted(path, true)) note_accepted(path);
      if (is_gone && (options_.accept_removed != 0 || is_accepted(path, true))) continue;
      if (is_gone) report(event_of(TANDEM_PAR2_SET_ABSENT, path, TANDEM_PAR2_ATTENTION));
      if (is_there && !S_ISREG(status.st_mode))
        report(event_of(TANDEM_PAR2_SET_FAILED, path, TANDEM_PAR2_ATTENTION), "it is no regular file");
      sets.insert(name);
    }
    for (const auto &[path, had_effect] : accepted_)
      if (!had_effect) report(event_of(TANDEM_PAR2_ACCEPTED_NOTHING, joined(root_, path)));
    if (!writes || (list_ && sets == *list_)) return;
    write_list(sets);
    if (!list_ && found_below_)
      report(
          event_of(TANDEM_PAR2_NO_LIST, joined(root_, kListName), TANDEM_PAR2_ATTENTION),
          "there was none, though folders have sets, and a new one was made. If one was lost, sets that are gone with "
          "their folders are not named");
  } catch (const Error &error) {
    if (error.status() != TANDEM_ERROR_IO) throw;
    const std::int32_t severity = list_ ? TANDEM_PAR2_UNREAD : TANDEM_PAR2_FINE;
    report(event_of(TANDEM_PAR2_NO_LIST, joined(root_, kListName), severity), error.what());
  }
}

// The root is locked.
void Folders::write_list(const Names &sets) {
  const auto folder = std::make_shared<base::Folder>(root_);
  const std::string temporary = std::string(kNewName) + ".sets";
  folder->remove(temporary);
  base::PendingFile file(folder, temporary, 01000);
  std::string text(kListTitle);
  for (const std::string &name : sets) text += escaped(name) + "\n";
  text += list_end(sets.size());
  if (!base::write_at(file.descriptor(), reinterpret_cast<const std::byte *>(text.data()), text.size(), 0))
    fail_io("write", file.path(), errno);
  file.finish(options_.no_sync != 0);
  file.rename(kListName, true, options_.no_sync != 0);
}

}  // namespace tandem::par2
