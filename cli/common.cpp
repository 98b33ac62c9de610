// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/option_table.hpp"
#include "cli/sets.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

volatile sig_atomic_t signal_caught = 0;
bool a_timeline_failed = false;

void on_signal(int number) { signal_caught = number; }

}  // namespace

// A switch over the enumeration, without a default: the compiler names the status that is missing here.
int exit_status_of(tandem_status status) {
  switch (static_cast<tandem_status_value>(status)) {
    case TANDEM_OK:
      return kExitDone;
    case TANDEM_ERROR_INVALID_ARGUMENT:
    case TANDEM_ERROR_UNSUPPORTED:
    case TANDEM_ERROR_UNAVAILABLE:
    case TANDEM_ERROR_TOO_LARGE:
    case TANDEM_ERROR_NOT_MDS:
      return kExitWrongUsage;
    case TANDEM_ERROR_NOT_RECOVERABLE:
    case TANDEM_ERROR_DAMAGED:
      return kExitNotRecoverable;
    case TANDEM_ERROR_CANCELLED:
      return 128 + (signal_caught != 0 ? static_cast<int>(signal_caught) : SIGINT);
    case TANDEM_ERROR_OUT_OF_MEMORY:
    case TANDEM_ERROR_OVERLAP:
    case TANDEM_ERROR_DEVICE:
    case TANDEM_ERROR_IO:
    case TANDEM_ERROR_INTERNAL:
      return kExitInputOutput;
  }
  return kExitInputOutput;  // of a newer library
}

void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  if (status == TANDEM_ERROR_CANCELLED)
    throw Failure{exit_status_of(status), "interrupted; no temporary file was left behind", status};
  throw Failure{exit_status_of(status), tandem_last_error_message(), status};
}

Json failure_object(const Failure &failure) {
  std::int32_t status = failure.status;
  if (status == TANDEM_OK)
    status = failure.exit_status == kExitWrongUsage         ? TANDEM_ERROR_INVALID_ARGUMENT
             : failure.exit_status == kExitNotRecoverable   ? TANDEM_ERROR_NOT_RECOVERABLE
             : failure.exit_status == 128 + caught_signal() ? TANDEM_ERROR_CANCELLED
                                                            : TANDEM_ERROR_IO;
  return {{"exit_status", failure.exit_status},
          {"status", status},
          {"status_name", tandem_status_name(status)},
          {"message", failure.message}};
}

void print_note(void *, const char *note) { complain(std::string("note: ") + note); }

int caught_signal() { return static_cast<int>(signal_caught); }

void add_output_flags(CLI::App &command, OutputFlags &flags) {
  command.add_flag("--json", flags.json, "Print one JSON object on standard output");
  command.add_flag("--quiet,-q", flags.quiet, "Print nothing but warnings and errors");
}

void add_set_flags(CLI::App &command, SetFlags &flags, const std::string &paths_help, const Ranks *ranks) {
  command.add_option("PATH", flags.paths, paths_help)->required();
  CLI::Option *set =
      command.add_option("--set", flags.set_id, "Id of the set, or its first digits, where there are several")
          ->type_name("ID");
  if (ranks == nullptr)
    command
        .add_option("--name", flags.name, "Name of the set, as encode gave it to the files, where there are several")
        ->type_name("NAME")
        ->excludes(set);
  command.add_flag("-r,--recursive", flags.recursive,
                   "Look in all folders below too; without it, a folder that holds no file stands for those in it");
}

void add_write_flags(CLI::App &command, WriteFlags &flags, const std::string &force_help,
                     const std::string &dry_run_help) {
  command.add_flag("--force", flags.force, force_help);
  command.add_flag("--dry-run", flags.dry_run, dry_run_help);
  command.add_flag("--no-sync", flags.no_sync, "Do not wait until the bytes are on the disk")->group(kExpert);
  command
      .add_option("--lock-wait", flags.lock_wait_seconds,
                  "Seconds to wait for a folder that another process has locked (flock); default: 60")
      ->check(CLI::Range(std::uint32_t{1}, UINT32_MAX))
      ->group(kExpert);
}

std::vector<std::string> executor_names() { return {"serial", "pthread", "openmp"}; }

void add_context_flags(CLI::App &command, ContextFlags &flags, CodesOn where) {
  command.add_option("--backend", flags.backend, "Where to compute: auto, or a name that `tandem devices` lists")
      ->type_name("NAME");
  command.add_option("--kernel", flags.kernel, "CPU kernel to use instead of the best one; see `tandem devices`")
      ->type_name("NAME")
      ->group(kExpert);
  command
      .add_option("--technique", flags.technique,
                  "How the CPU codes. transform is for wide codes and is refused for others. Default: the faster one")
      ->check(one_of({"matrix", "transform"}))
      ->group(kExpert);
  if (where == CodesOn::devices_too) {
    command.add_option("--device-technique", flags.device_technique, "How a device codes; default: the faster one")
        ->check(one_of({"compiled", "tables", "transform"}))
        ->group(kExpert);
    command.add_option("--policy", flags.policy, "How a hybrid backend shares its work; default: auto")
        ->check(one_of({"budget", "auto"}))
        ->group(kExpert);
  }
  command.add_option("--threads", flags.thread_count, "Threads; default: every core that this process may use");
  command.add_option("--executor", flags.executor, "How work is spread over CPU threads")
      ->check(one_of(executor_names()))
      ->group(kExpert);
  command.add_flag("--pin", flags.pin, "Pin each thread to a core")->group(kExpert);
  command
      .add_option("--resource", flags.resources,
                  "At most N of a resource at once. cpu=2: CPU tasks. gpu=1: device tasks. opencl_mib=512, "
                  "cuda_mib=512: MiB of device memory. pinned_mib=64: MiB of a hybrid's staging memory (repeatable)")
      ->type_name("NAME=N")
      ->allow_extra_args(false)
      ->group(kExpert);
  command
      .add_option("--timeline", flags.timeline,
                  "Write a timeline of all workers to this new file (Chrome trace format; docs/internals/TIMELINE.md)")
      ->envname("TANDEM_TIMELINE")
      ->type_name("FILE.json")
      ->group(kExpert);
  flags.command = &command;
  if (command.get_option_no_throw("--force") == nullptr)
    command.add_flag("--force")->description("Replace the file of --timeline if it exists")->group(kExpert);
  command.add_flag("--log", flags.log, "Print the library's decisions and their reasons on standard error")
      ->group(kExpert);
}

namespace {

ContextOwner create(const ContextFlags &flags);

// The library makes a new file only. With --force the command removes a file, but none that it reads, no shard file,
// and no link.
void make_room_for_timeline(const ContextFlags &flags) {
  const char *const path = flags.timeline.c_str();
  struct stat old, other;
  if (*path == '\0' || flags.command == nullptr || flags.command->count("--force") == 0 || lstat(path, &old) != 0 ||
      !S_ISREG(old.st_mode))
    return;
  for (const char *inputs : {"FILE", "PATH"})
    if (const CLI::Option *option = flags.command->get_option_no_throw(inputs); option != nullptr)
      for (const std::string &input : option->results())
        if (stat(input.c_str(), &other) == 0 && other.st_dev == old.st_dev && other.st_ino == old.st_ino)
          fail(kExitWrongUsage, "--timeline ", path, ": the command reads this file");
  tandem_files_search *found = nullptr;
  check(tandem_files_search_create(&path, 1, &found));
  if (const SearchOwner owner(found); tandem_files_search_set_count(found) != 0)
    fail(kExitWrongUsage, "--timeline ", path, " is a shard file; choose another file");
  ContextFlags others = flags;  // if these are wrong, the old file stays
  others.timeline.clear();
  create(others);
  if (unlink(path) != 0) fail(kExitInputOutput, "cannot replace ", path, ": ", std::strerror(errno));
}

template <bool is_log_shown>
void hear(void *, std::int32_t, const char *text) {
  const bool is_failure = std::string_view(text).starts_with("no timeline: ");
  if (is_failure) a_timeline_failed = true;
  if (is_failure || is_log_shown) complain(text);
}

}  // namespace

bool timeline_failed() noexcept { return a_timeline_failed; }

ContextOptions::ContextOptions(const ContextFlags &flags) : flags_(flags) {
  for (const std::string &resource : flags_.resources) {
    if (!resources_.empty()) resources_ += ',';
    resources_ += resource;
  }
  // A context writes its timeline when it ends. Only its log says that this failed.
  options_.log_level = flags_.log ? TANDEM_LOG_DEBUG : TANDEM_LOG_WARNING;
  options_.log_callback = flags_.log ? hear<true> : hear<false>;
  if (!flags_.backend.empty()) options_.backend = flags_.backend.c_str();
  if (!flags_.kernel.empty()) options_.kernel = flags_.kernel.c_str();
  if (!flags_.policy.empty()) options_.policy = flags_.policy.c_str();
  make_room_for_timeline(flags_);
  options_.timeline_file = flags_.timeline.c_str();
  if (!resources_.empty()) options_.resources = resources_.c_str();
  options_.thread_count = flags_.thread_count;
  const auto add = [this](const char *key, const std::string &value) {
    if (!value.empty()) expert_ += fmt::format("{}{}={}", expert_.empty() ? "" : ",", key, value);
  };
  add("executor", flags_.executor);
  add("pin", flags_.pin ? "1" : "");
  add("technique", flags_.technique);
  add("device_technique", flags_.device_technique);
  if (!expert_.empty()) options_.expert = expert_.c_str();
}

namespace {

// Whether a comma-separated list has the name.
bool has_name(std::string_view list, std::string_view name) {
  for (std::optional<std::string_view> rest = list; rest;)
    if (base::cut(rest, ",") == name) return true;
  return false;
}

// Refuses a limit on a resource that no task of the run holds: it would have no effect. The library has checked the
// form.
void check_resources(const ContextFlags &flags, const tandem_context_info &info) {
  for (const std::string &amounts : flags.resources) {
    for (std::optional<std::string_view> rest = amounts; rest && !amounts.empty();) {
      const std::string_view amount = base::cut(rest, ","), name = amount.substr(0, amount.find('='));
      if (!has_name(info.resources, name)) {
        fail(kExitWrongUsage, "--resource ", amount, ": no task of this run holds \"", name, "\"; on backend ",
             info.backend, " tasks hold ", info.resources);
      }
    }
  }
}

ContextOwner create(const ContextFlags &flags) {
  const ContextOptions options(flags);
  tandem_context *context = nullptr;
  check(tandem_context_create(options.get(), &context));
  ContextOwner owner(context);
  check_resources(flags, query(owner));
  return owner;
}

}  // namespace

bool has_cpu_threads(ContextFlags flags) {
  flags.thread_count = 0;
  flags.timeline.clear();
  flags.log = false;
  return query(create(flags)).thread_count != 0;  // touches no device, starts no thread
}

ContextOwner make_context(ContextFlags flags) {
  if (flags.thread_count != 0 && !has_cpu_threads(flags)) flags.thread_count = 0;
  return create(flags);
}

tandem_context_info query(const ContextOwner &context) {
  auto info = sized<tandem_context_info>();
  check(tandem_context_query(context.get(), &info));
  return info;
}

std::string installed_part(const std::string &file, std::string_view needs) {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  // First the place after installation, then the place in a build folder.
  const fs::path places[] = {(own / TANDEM_LIBRARY_FROM_COMMAND / "tandem" / file).lexically_normal(),
                             (own / "../lib/tandem" / file).lexically_normal()};
  for (const fs::path &place : places)
    if (fs::exists(place)) return place;
  fail(kExitInputOutput, places[0].string(), " is missing: ", needs,
       "`make demo` does not build it; build all of Tandem (cmake --build build)");
}

void allow_open_files() {
  // Each shard needs its file, a folder, that folder's record and the file that it replaces. Other files are open too.
  constexpr rlim_t kWanted = rlim_t{4} * TANDEM_FILES_MAX_SHARDS + 128;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kWanted) return;
  limit.rlim_cur = std::min(kWanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, the command reports what it cannot open
}

SearchOwner search(const std::vector<std::string> &paths, const OutputFlags &flags, bool recursive) {
  const std::vector<const char *> list = pointers(paths);
  tandem_files_search *found = nullptr;
  check(tandem_files_search_create(list.data(), list.size(), &found));
  SearchOwner owner(found);
  std::vector<std::string> par2_folders;
  if (tandem_files_search_set_count(found) == 0)
    for (const std::string &path : paths)
      if (const std::string command = par2_command(path, false); !command.empty()) {
        complain("note: ", path, " has PAR2 sets: `", command, "` checks them");
        par2_folders.push_back(path.ends_with('/') ? path : path + "/");
      }
  if (flags.quiet || flags.json) return owner;
  const auto is_par2 = [&](std::string_view why) {
    return std::ranges::any_of(par2_folders, [&](const std::string &folder) { return why.starts_with(folder); });
  };
  constexpr std::size_t kMostNotes = 10;
  std::size_t count = 0;
  for (std::size_t i = 0; const char *why = tandem_files_search_left_out(found, TANDEM_FILES_IGNORED, i); ++i) {
    if ((recursive || is_par2(why)) && std::string_view(why).ends_with(": no shard file")) continue;
    if (++count <= kMostNotes) complain("note: ignored ", why);
  }
  if (count > kMostNotes) complain("note: ignored ", plural(count - kMostNotes, "file"), " more");
  if (!recursive && par2_folders.empty() && tandem_files_search_set_count(found) == 0 &&
      std::ranges::any_of(paths, has_folders))
    complain("note: with --recursive (-r) the folders below are searched, too");
  return owner;
}

int with_search(const std::vector<std::string> &paths, const OutputFlags &flags, bool may_repeat,
                const std::function<int(const SearchOwner &)> &body, bool recursive) {
  constexpr int kMostTries = 20;
  for (int tries = 1;; ++tries) {
    const SearchOwner found = search(paths, flags, recursive);
    try {
      return body(found);
    } catch (const Failure &failure) {
      if (!may_repeat || tries == kMostTries || failure.exit_status != kExitInputOutput ||
          tandem_files_search_check(found.get()) == TANDEM_OK)
        throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void recover(const std::vector<std::string> &paths, bool dry_run, std::uint32_t lock_wait_seconds) {
  allow_open_files();
  constexpr std::uint32_t kMostSeconds = 2;  // the command can go on without it
  std::vector<const char *> there;
  for (const std::string &path : paths)
    if (access(path.c_str(), F_OK) == 0) there.push_back(path.c_str());
  if (there.empty()) return;
  auto options = sized<tandem_files_recover_options>();
  options.dry_run = dry_run;
  options.lock_wait_seconds = lock_wait_seconds == 0 ? kMostSeconds : std::min(lock_wait_seconds, kMostSeconds);
  options.note = print_note;
  check(tandem_files_recover(there.data(), there.size(), &options, nullptr));
}

std::vector<tandem_files_shard> shards_of(const SearchOwner &found, std::size_t set_index) {
  auto set = sized<tandem_files_set>();
  check(tandem_files_search_set(found.get(), set_index, &set));
  std::vector<tandem_files_shard> shards(set.file_count, sized<tandem_files_shard>());
  for (std::size_t i = 0; i < shards.size(); ++i)
    check(tandem_files_search_shard(found.get(), set_index, i, &shards[i]));
  return shards;
}

std::vector<std::string> expand_index(const std::vector<std::string> &folders, std::uint32_t shard_count) {
  constexpr std::string_view kIndex = "{i}";
  bool indexed = false;
  for (const std::string &folder : folders) indexed = indexed || folder.find(kIndex) != std::string::npos;
  if (!indexed) return folders;
  std::vector<std::string> all;
  for (std::uint32_t i = 0; i < shard_count; ++i) {
    std::string folder = folders[i % folders.size()];
    for (std::size_t at; (at = folder.find(kIndex)) != std::string::npos;)
      folder.replace(at, kIndex.size(), std::to_string(i));
    all.push_back(std::move(folder));
  }
  return all;
}

std::vector<const char *> pointers(const std::vector<std::string> &strings) {
  std::vector<const char *> list;
  for (const std::string &string : strings) list.push_back(string.c_str());
  return list;
}

namespace {

// Bytes a second over the last seconds, not since the start.
class RecentRate {
 public:
  void add(double seconds, std::uint64_t bytes) {
    if (!samples_.empty() && bytes < samples_.back().second) samples_.clear();
    samples_.emplace_back(seconds, bytes);
    while (samples_.size() > 2 && samples_[1].first <= seconds - kWindowSeconds) samples_.pop_front();
  }
  // 0: not known yet.
  double bytes_per_second() const {
    if (samples_.size() < 2) return 0;
    const double seconds = samples_.back().first - samples_.front().first;
    return seconds > 0 ? static_cast<double>(samples_.back().second - samples_.front().second) / seconds : 0;
  }

 private:
  static constexpr double kWindowSeconds = 3;
  std::deque<std::pair<double, std::uint64_t>> samples_;
};

}  // namespace

struct Progress::State {
  using Clock = std::chrono::steady_clock;
  std::string action;
  std::vector<Phase> phases;
  bool shown = false;           // a terminal is there to draw on
  std::size_t drawn_width = 0;  // of the line on the screen
  std::size_t phase = 0;
  std::uint64_t last_done_bytes = 0;
  RecentRate recent;
  Clock::time_point started = Clock::now();
  struct sigaction before[3] = {};

  static constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGHUP};

  void draw(std::uint64_t done_bytes, std::uint64_t total_bytes) {
    if (total_bytes == 0) return;  // the call waits for a lock or a pipe
    if (done_bytes < last_done_bytes && phase + 1 < phases.size()) ++phase;
    last_done_bytes = done_bytes;
    recent.add(std::chrono::duration<double>(Clock::now() - started).count(), done_bytes);
    const double speed = recent.bytes_per_second();
    const std::string rate = size(static_cast<std::uint64_t>(speed)) + "/s";
    std::string label = action;
    if (!phases[phase].name.empty()) label += fmt::format(": {}", phases[phase].name);
    if (total_bytes == TANDEM_FILES_UNKNOWN_BYTES) {
      show(label, -1, fmt::format("{}  {}", size(done_bytes), rate));
    } else if (done_bytes >= total_bytes && phases[phase].syncs) {
      show(fmt::format("{}: syncing {} to the disk", action, size(total_bytes)), -1, "");
    } else {
      const std::uint64_t left_bytes = total_bytes - std::min(done_bytes, total_bytes);
      const double part = 1 - static_cast<double>(left_bytes) / static_cast<double>(total_bytes);
      show(label, part, rate + (speed > 0 && left_bytes != 0 ? left(static_cast<double>(left_bytes) / speed) : ""));
    }
  }

  static std::string left(double seconds) {
    constexpr double kMost = 1000 * 3600;
    const auto whole = static_cast<std::uint64_t>(std::min(seconds, kMost) + 0.5);
    return fmt::format("  {}:{:02}:{:02} left", whole / 3600, whole / 60 % 60, whole % 60);
  }

  // "LABEL [####....]  40%  TEXT": the bar fills the rest of the line. part < 0: without bar and percentage.
  void show(const std::string &label, double part, const std::string &text) {
    constexpr std::size_t kMostBar = 30, kLeastBar = 5;
    const std::size_t width =
        terminal_columns(STDERR_FILENO) - 1;  // in the last column some terminals begin a new line
    std::string line = label;
    if (part >= 0) {
      const std::string percent = fmt::format(" {:3.0f}%", part * 100);
      const std::size_t others = label.size() + percent.size() + text.size() + 5;  // with the spaces and brackets
      const std::size_t bar = others < width ? std::min(width - others, kMostBar) : 0;
      if (bar >= kLeastBar) {
        const auto filled = static_cast<std::size_t>(part * static_cast<double>(bar));
        line += fmt::format(" [{}{}]", std::string(filled, '#'), std::string(bar - filled, '.'));
      }
      line += percent + " ";
    }
    if (!text.empty()) line += " " + text;
    if (line.size() > width) line.resize(width);
    const std::size_t used = line.size();
    if (used < drawn_width) line.append(std::min(drawn_width, width) - std::min(used, width), ' ');
    write_standard_error("\r" + line);
    drawn_width = used;
  }
};

Progress::Progress(std::string_view action, const OutputFlags &flags, std::vector<Phase> phases)
    : state_(std::make_unique<State>()) {
  state_->action = action;
  state_->phases = std::move(phases);
  state_->shown = !flags.quiet && !flags.json && isatty(STDERR_FILENO) == 1;
  struct sigaction handler = {};
  handler.sa_handler = on_signal;
  handler.sa_flags = SA_RESETHAND;  // a second one ends the program at once
  sigemptyset(&handler.sa_mask);
  for (int i = 0; i < 3; ++i) {
    sigaction(State::kSignals[i], nullptr, &state_->before[i]);
    // nohup, and shells for background jobs, let children ignore signals. Keep that.
    if (state_->before[i].sa_handler != SIG_IGN) sigaction(State::kSignals[i], &handler, nullptr);
  }
}

Progress::~Progress() {
  for (int i = 0; i < 3; ++i) sigaction(State::kSignals[i], &state_->before[i], nullptr);
  clear();
}

void Progress::clear() {
  if (state_->drawn_width != 0)
    write_standard_error("\r" + std::string(std::min(state_->drawn_width, terminal_columns(STDERR_FILENO) - 1), ' ') +
                         "\r");
  state_->drawn_width = 0;
}

std::int32_t Progress::callback(void *user, std::uint64_t done_bytes, std::uint64_t total_bytes) {
  State &state = *static_cast<Progress *>(user)->state_;
  if (state.shown) state.draw(done_bytes, total_bytes);
  return signal_caught != 0 ? 1 : 0;
}

bool Progress::tick(double part, double seconds_left, std::string_view text) {
  part = std::clamp(part, 0.0, 1.0);
  if (state_->shown)
    state_->show(state_->action, part, fmt::format("{}{}", text, seconds_left > 0 ? State::left(seconds_left) : ""));
  return signal_caught != 0;
}

}  // namespace tandem::cli
