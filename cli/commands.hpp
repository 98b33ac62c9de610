// SPDX-License-Identifier: Apache-2.0
// The commands of `tandem`, and what they share. Each command has its own file and an entry in the list of main.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/options.hpp"
#include "base/text.hpp"
#include "cli/units.hpp"
#include "tandem/files.h"
#include "tandem/tandem.h"

namespace CLI {
class App;
}

namespace tandem::cli {

using Json = nlohmann::ordered_json;
using base::hexadecimal;
using base::sized;

enum ExitStatus : int {
  kExitDone = 0,
  kExitDamageFound = 1,  // recoverable
  kExitWrongUsage = 2,
  kExitInputOutput = 3,
  kExitNotRecoverable = 4
};

// Ends a command: one sentence for standard error and the exit status.
struct Failure {
  int exit_status;
  std::string message;
  std::int32_t status = TANDEM_OK;  // the library's, if the message is the library's
};
template <class... Parts>
[[noreturn]] void fail(int exit_status, const Parts &...message) {
  throw Failure{exit_status, base::text(message...)};
}
// What --json says about a failure: "exit_status", "status", "status_name" (of the library), "message".
Json failure_object(const Failure &failure);

int exit_status_of(tandem_status status);
// Throws Failure for anything but TANDEM_OK, with the library's sentence.
void check(tandem_status status);

// What a call lists that tells the count without room, such as tandem_devices.
template <class Struct, class List>
std::vector<Struct> all(const List &list) {
  std::size_t count = 0;
  check(list(nullptr, 0, sizeof(Struct), &count));
  std::vector<Struct> found(count);
  check(list(found.data(), found.size(), sizeof(Struct), &count));
  if (count < found.size()) found.resize(count);
  return found;
}

struct Ranks;

struct Invocation {
  std::function<int()> run;  // set by the command that was named; main runs it
  Ranks *ranks = nullptr;    // null: one process
};

void add_encode_command(CLI::App &app, Invocation &invocation);
void add_decode_command(CLI::App &app, Invocation &invocation);
void add_verify_command(CLI::App &app, Invocation &invocation);
void add_repair_command(CLI::App &app, Invocation &invocation);
void add_resize_command(CLI::App &app, Invocation &invocation);
void add_info_command(CLI::App &app, Invocation &invocation);
void add_devices_command(CLI::App &app, Invocation &invocation);
void add_autotune_command(CLI::App &app, Invocation &invocation);
void add_volume_command(CLI::App &app, Invocation &invocation);
void add_par2_command(CLI::App &app, Invocation &invocation);
void add_isal_env_command(CLI::App &app, Invocation &invocation);
void add_durability_command(CLI::App &app, Invocation &invocation);

// --json, --quiet.
struct OutputFlags {
  bool json = false, quiet = false;
};
void add_output_flags(CLI::App &command, OutputFlags &flags);

// PATH..., --set, --name, --recursive.
struct SetFlags {
  std::vector<std::string> paths;
  std::string set_id, name;
  bool recursive = false;
  // As options of the library take it.
  const char *set_id_prefix() const { return set_id.empty() ? nullptr : set_id.c_str(); }
};
// ranks: those of a job, which knows no names of sets; or null.
void add_set_flags(CLI::App &command, SetFlags &flags, const std::string &paths_help, const Ranks *ranks);

// --force, --dry-run, --no-sync, --lock-wait: of commands that write files.
struct WriteFlags {
  bool force = false, dry_run = false, no_sync = false;
  std::uint32_t lock_wait_seconds = 0;

  template <class Options>
  void set(Options &options) const {
    options.force = force;
    options.dry_run = dry_run;
    options.no_sync = no_sync;
    options.lock_wait_seconds = lock_wait_seconds;
  }
};
void add_write_flags(CLI::App &command, WriteFlags &flags, const std::string &force_help,
                     const std::string &dry_run_help);

// --backend, --kernel, --technique, --device-technique, --threads, --executor, --pin, --resource, --policy, --timeline
// (not in tandem-bench run), --force (the same), --log.
struct ContextFlags {
  std::string backend, kernel, technique, device_technique, executor, policy, timeline;
  std::uint32_t thread_count = 0;
  bool pin = false;
  std::vector<std::string> resources;
  bool log = false;
  const CLI::App *command = nullptr;
};
// Also adds --force, for the file of --timeline, if the command has none.
enum class CodesOn { cpu, devices_too };
void add_context_flags(CLI::App &command, ContextFlags &flags, CodesOn where = CodesOn::devices_too);
std::vector<std::string> executor_names();

// What `tandem-mpi` puts in place of the library's calls for one process. All ranks return the same.
struct Ranks {
  virtual ~Ranks() = default;
  virtual tandem_status encode(tandem_context *context, const tandem_files_encode_options &options,
                               tandem_files_result *result_out) = 0;
  virtual tandem_status decode(tandem_context *context, const std::vector<std::string> &paths,
                               const tandem_files_decode_options &options, tandem_files_result *result_out) = 0;
  virtual tandem_status verify(tandem_context *context, const std::vector<std::string> &paths,
                               const tandem_files_verify_options &options, tandem_files_verify_result *result_out) = 0;
  virtual tandem_status repair(tandem_context *context, const std::vector<std::string> &paths,
                               const tandem_files_repair_options &options, tandem_files_repair_result *result_out) = 0;
  // Adapts the flags to this rank. Without a number of threads it gets its share of the node's cores. Only rank 0 keeps
  // a timeline.
  virtual void adapt(ContextFlags &flags) const = 0;
  virtual bool leads() const = 0;  // prints
};

struct Destroy {
  void operator()(tandem_context *context) const noexcept { tandem_context_destroy(context); }
  void operator()(tandem_codec *codec) const noexcept { tandem_codec_destroy(codec); }
  void operator()(tandem_files_search *search) const noexcept { tandem_files_search_destroy(search); }
};
using ContextOwner = std::unique_ptr<tandem_context, Destroy>;
// The flags as the library takes them.
class ContextOptions {
 public:
  explicit ContextOptions(const ContextFlags &flags);
  ContextOptions(const ContextOptions &) = delete;
  ContextOptions &operator=(const ContextOptions &) = delete;
  const tandem_context_options *get() const noexcept { return &options_; }

 private:
  ContextFlags flags_;
  std::string resources_, expert_;
  tandem_context_options options_ = sized<tandem_context_options>();
};
// Whether the context of such flags would have CPU threads: a device alone has none.
bool has_cpu_threads(ContextFlags flags);
// For a command that reads and writes with --threads threads. A backend without CPU threads gets no number of threads.
ContextOwner make_context(ContextFlags flags);
tandem_context_info query(const ContextOwner &context);

// Raises the limit of open files to what the largest set needs, within the hard limit. encode has all shard files open
// at once. Reading also works with fewer, but slowly. Shells set a low limit for programs that use select(); this one
// does not use it.
void allow_open_files();
using SearchOwner = std::unique_ptr<tandem_files_search, Destroy>;
// Searches, and runs `body` on the result. If `body` fails because files were replaced meanwhile, for example by an
// encode, this is repeated. may_repeat: `body` has no effect when it fails; without it nothing is repeated.
int with_search(const std::vector<std::string> &paths, const OutputFlags &flags, bool may_repeat,
                const std::function<int(const SearchOwner &)> &body, bool recursive = false);
// Notes on standard error name the ignored files, unless quiet. recursive: no notes about files that are no shard
// files.
SearchOwner search(const std::vector<std::string> &paths, const OutputFlags &flags, bool recursive = false);

// Removes what killed runs left behind, with notes. Ignores paths that do not exist. Waits at most two
// seconds for folders that another process has locked, or lock_wait_seconds if that is less and not 0.
void recover(const std::vector<std::string> &paths, bool dry_run, std::uint32_t lock_wait_seconds = 0);
// The shard files of a set, in order of their indices.
std::vector<tandem_files_shard> shards_of(const SearchOwner &found, std::size_t set_index);
// If a folder's name has {i}: one entry for each shard. Else the folders unchanged.
std::vector<std::string> expand_index(const std::vector<std::string> &folders, std::uint32_t shard_count);
std::vector<const char *> pointers(const std::vector<std::string> &strings);

// Shows a line on standard error if that is a terminal. SIGINT, SIGTERM and SIGHUP cancel the call. At most one object
// exists at a time. The line has no escape sequence and is shorter than the terminal is wide.
class Progress {
 public:
  // A step of a call. The call counts its bytes from 0 in each step. A step that syncs waits for the disk when all
  // bytes are counted. Counts that start again after the last step belong to the last step.
  struct Phase {
    std::string_view name;  // "": the only step
    bool syncs;
  };
  Progress(std::string_view action, const OutputFlags &flags, std::vector<Phase> phases = {{"", false}});
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  static std::int32_t callback(void *user, std::uint64_t done_bytes, std::uint64_t total_bytes);
  // For work that is not counted in bytes: the part that is done, and a text beside the bar. True: a signal asks to
  // stop.
  bool tick(double part, double seconds_left, std::string_view text);

 private:
  void clear();
  struct State;
  std::unique_ptr<State> state_;
};

// A callback for the library's notes: prints a line on standard error.
void print_note(void *user, const char *note);

// The signal that cancelled the command, or 0.
int caught_signal();

// Runs `call` with a progress bar, and sets the progress callback of `options`. Throws as check does.
template <class Options, class Call>
void run_with_progress(std::string_view action, const OutputFlags &flags, Options &options, Call call,
                       std::vector<Progress::Phase> phases = {{"", true}}) {
  bool syncs = false;
  if constexpr (requires { options.no_sync; }) syncs = options.no_sync == 0;
  if constexpr (requires { options.dry_run; }) syncs = syncs && options.dry_run == 0;
  for (Progress::Phase &phase : phases) phase.syncs = phase.syncs && syncs;
  Progress progress(action, flags, std::move(phases));
  options.progress = Progress::callback;
  options.progress_user = &progress;
  check(call());
}

// A name as text for people. A backslash becomes \\. Each byte of a control character, and each byte that is not
// UTF-8, becomes \xHH. So a name cannot control a terminal, stays on its line, and can be read back.
std::string printable(std::string_view name);
std::string shell_word(std::string_view text);      // one word of a shell, in single quotes
std::string word_for_shell(std::string_view text);  // the same, without quotes where none are needed
// The path of a file of lib/tandem/, relative to the command's own folder, because a prefix may be moved. `needs`: what
// else than `make demo` builds it, for the message.
std::string installed_part(const std::string &file, std::string_view needs);
// Packages may give the command `tandem` another name. Messages use these names. `program`: the program that runs.
// `command`: its name as `tandem`; it has commands that `tandem-mpi` lacks. The strings must stay valid.
void set_names(const char *program, const char *command) noexcept;
const char *program_name() noexcept;
const char *command_name() noexcept;
// One line on standard error, "PROGRAM: SENTENCE", printable. Never throws: main learns from standard_error_failed().
void complain(std::string_view sentence) noexcept;
template <class First, class Second, class... More>
void complain(const First &first, const Second &second, const More &...more) {
  complain(base::text(first, second, more...));
}
void be_silent() noexcept;  // from now on complain() says nothing: another rank says it
bool is_silent() noexcept;
void write_standard_error(std::string_view text) noexcept;
bool standard_error_failed() noexcept;
bool timeline_failed() noexcept;  // of a context that has ended
// The width of the terminal on a descriptor; 80 without a terminal.
std::size_t terminal_columns(int descriptor) noexcept;
// The schema of the JSON of all commands. New keys keep the number; a key that changes its meaning gets a new number.
constexpr int kJsonSchema = 1;
// Two spaces of indentation, and a newline. An object begins with "schema". In strings a backslash becomes \\ and a
// byte that is not UTF-8 becomes \xHH.
std::string json_text(Json object);
void print_json(const Json &object);
bool json_was_printed() noexcept;
std::string plural(std::uint64_t count, std::string_view noun);  // "1 shard", "2 shards"
// For a terminal; elsewhere the word as it is. badness: 0 to 2, as enum tandem_files_state_value.
std::string colored(std::int32_t badness, std::string_view word);
const char *operation_name(std::int32_t operation);  // of enum tandem_operation_value; "?": none of it

}  // namespace tandem::cli
