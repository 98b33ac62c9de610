// SPDX-License-Identifier: Apache-2.0
// tandem volume
#include "cli/volume.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/file_report.hpp"
#include "cli/option_table.hpp"
#include "tandem/tools.h"
#include "tandem/volume.h"
#include "volume/control.hpp"

namespace tandem::cli {
namespace {

constexpr const char *kVolumeFooter =
    "A MEMBER is a file, a block device or an NBD URI (nbd://HOST, nbd+unix:///?socket=PATH). The order of members\n"
    "matters in `create` alone. Up to m members may be missing. For a volume that is being served give --socket\n"
    "instead, with the path that `serve` was given. docs/volume.md describes volumes.";

struct CreateFlags {
  std::vector<std::string> members;
  std::uint32_t k = 0, m = 0, unit_bytes = 0;
  std::uint64_t member_bytes = 0, log_bytes = 0;
  std::string matrix;
  bool allow_non_mds = false, force = false;
  OutputFlags output;
};

struct AskFlags {
  VolumeTarget target;
  OutputFlags output;
};

struct DelayFlags : AskFlags {
  std::uint64_t offset_bytes = 0, bytes = 0, bound_bytes = 0, bound_seconds = 0;
  bool has_offset = false, has_bytes = false, accept_loss = false;
};

struct CareFlags : AskFlags {
  std::uint64_t rate_bytes_per_second = 0;
  bool repair = false, restart = false;
};

struct ReplaceFlags : AskFlags {
  std::uint32_t index = 0;
  std::string member;
  bool force = false;
};

// ---- asking

class Volume {
 public:
  Volume(const std::vector<std::string> &members, bool read_only) {
    const std::vector<const char *> list = pointers(members);
    auto options = sized<tandem_volume_open_options>();
    options.members = list.data();
    options.member_count = list.size();
    options.read_only = read_only;
    options.note = print_note;
    const tandem_status status = tandem_volume_open(nullptr, &options, &volume_);
    if (status == TANDEM_ERROR_UNAVAILABLE)
      fail(exit_status_of(status), tandem_last_error_message(),
           "; a volume that is being served is reached by --socket");
    check(status);
  }
  ~Volume() { tandem_volume_close(volume_); }
  Volume(const Volume &) = delete;
  Volume &operator=(const Volume &) = delete;
  tandem_volume *get() const { return volume_; }
  tandem_status close() { return tandem_volume_close(std::exchange(volume_, nullptr)); }

 private:
  tandem_volume *volume_ = nullptr;
};

void check_target(const VolumeTarget &target) {
  if (target.members.empty() == target.socket.empty())
    fail(kExitWrongUsage, target.socket.empty()
                              ? "name the members, or with --socket the socket of a volume that is being served"
                              : "name the members or a socket, not both");
}

Json ask_members(const AskFlags &flags, const Json &request, bool read_only, Progress &progress) {
  Volume volume(flags.target.members, read_only);
  const auto hear = [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    return Progress::callback(&progress, done_bytes, total_bytes) != 0;
  };
  Json answer = volume::control_answer(volume.get(), request, hear);
  if (const tandem_status status = volume.close(); status != TANDEM_OK && answer.at("status") == TANDEM_OK)
    return volume::failure(status, tandem_last_error_message());
  answer.erase("pid");  // of a server
  return answer;
}

// Prints the result of `body`, with --json as one object. A server may have another version: a key that its answer
// lacks is an error.
template <class Body>
int run_reported(const std::string &name, const OutputFlags &output, Body body) {
  Json object = volume_report(name);
  try {
    return body(object);
  } catch (const Failure &failure) {
    object["exit_status"] = failure.exit_status;
    object["message"] = failure.message;
    if (output.json) print_json(object);
    throw;
  } catch (const Json::exception &error) {
    fail(kExitInputOutput, "the answer was not understood: ", error.what());
  }
}

// Calls `print` if the status of the answer is 0. `print` returns the exit status.
template <class Print>
int ask(const std::string &name, const AskFlags &flags, bool read_only, Json request, Print print) {
  return run_reported(name, flags.output, [&](Json &object) {
    check_target(flags.target);
    Progress progress(name, flags.output);
    if (!flags.target.socket.empty() && !flags.output.quiet && !flags.output.json &&
        (name == "scrub" || name == "rebuild"))
      request["progress"] = true;
    const Json answer = flags.target.socket.empty() ? ask_members(flags, request, read_only, progress)
                                                    : ask_server(flags.target.socket, request, progress);
    const auto status = answer.at("status").get<std::int32_t>();
    if (status != TANDEM_OK) {
      object.update(answer);
      const std::string message = status == TANDEM_ERROR_CANCELLED
                                      ? std::string("interrupted; what was done stays done")
                                      : answer.at("message").get<std::string>();
      fail(exit_status_of(status), message);
    }
    const int exit_status = print(answer);
    if (flags.output.json) {
      object.update(answer);
      print_json(object);
    }
    return exit_status;
  });
}

// ---- the commands

int create(const CreateFlags &flags) {
  return run_reported("create", flags.output, [&](Json &object) {
    const std::vector<const char *> members = pointers(flags.members);
    auto options = sized<tandem_volume_create_options>();
    options.members = members.data();
    options.member_count = members.size();
    options.k = flags.k;
    options.m = flags.m;
    if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &options.matrix));
    options.allow_non_mds = flags.allow_non_mds;
    options.unit_bytes = flags.unit_bytes;
    options.force = flags.force;
    options.member_bytes = flags.member_bytes;
    options.log_bytes = flags.log_bytes;
    check(tandem_volume_create(&options));
    Volume volume(flags.members, true);
    const Json info = volume::control_answer(volume.get(), {{"command", "info"}}, nullptr);
    for (const char *key : {"volume_id", "k", "m", "matrix", "unit_bytes", "volume_bytes", "stripe_count", "log_bytes"})
      object[key] = info.at(key);
    if (flags.output.json) {
      print_json(object);
    } else if (!flags.output.quiet) {
      fmt::print("volume {}: {} in {} + {} members, any {} of which may be lost\n",
                 info.at("volume_id").get<std::string>(), size(info.at("volume_bytes").get<std::uint64_t>()), flags.k,
                 flags.m, flags.m);
    }
    return kExitDone;
  });
}

std::uint64_t number(const Json &object, const char *key) { return object.at(key).get<std::uint64_t>(); }
std::string text(const Json &object, const char *key) { return printable(object.at(key).get<std::string>()); }

std::string window_text(const Json &window) {
  return fmt::format("--offset {} --bytes {} ({})", number(window, "offset_bytes"), number(window, "bytes"),
                     size(number(window, "bytes")));
}

// "whole: any 2 members may be lost", "of 6 members 1 lost or stale, 0 being rebuilt, 0 with old blocks: 1 more may be
// lost".
std::string state_text(const Json &info) {
  const std::uint64_t k = number(info, "k"), m = number(info, "m"), away = number(info, "lost_count"),
                      rebuilding = number(info, "rebuilding_count"), old = number(info, "old_count");
  std::string state;
  if (const std::uint64_t not_whole = away + rebuilding + old; not_whole == 0) {
    state = fmt::format("whole: any {} members may be lost", m);
  } else {
    state = fmt::format("of {} members {} lost or stale, {} being rebuilt, {} with old blocks: ", k + m, away,
                        rebuilding, old);
    state += not_whole < m ? fmt::format("{} more may be lost", m - not_whole) : "no more may be lost";
  }
  if (!info.at("windows").empty())
    state += fmt::format("; {} of delayed parity open: no member may be lost there",
                         plural(info.at("windows").size(), "window"));
  return state;
}

void print_windows(const Json &answer) {
  for (const Json &window : answer.at("windows")) fmt::print("window of delayed parity: {}\n", window_text(window));
  const Json &bounded = answer.at("bounded");
  if (!bounded.is_null())
    fmt::print("bounded window: {}; at most {} are unprotected, each window begins to end after {} s\n",
               window_text(bounded), size(number(bounded, "bound_bytes")), number(bounded, "bound_seconds"));
  if (!bounded.is_null() || !answer.at("windows").empty())
    fmt::print("unprotected now: {} of {} in windows\n", size(number(answer, "unprotected_bytes")),
               size(std::accumulate(answer.at("windows").begin(), answer.at("windows").end(), std::uint64_t{0},
                                    [](std::uint64_t sum, const Json &each) { return sum + number(each, "bytes"); })));
}

int print_info(const Json &info) {
  fmt::print("volume {}: {} + {} members, {}, unit {} bytes, {}{}\n", text(info, "volume_id"), number(info, "k"),
             number(info, "m"), text(info, "matrix"), number(info, "unit_bytes"), size(number(info, "volume_bytes")),
             info.at("read_only").get<bool>() ? ", open read-only" : "");
  fmt::print("{}\n", state_text(info));
  print_windows(info);
  if (const std::uint64_t position = number(info, "scrub_position_bytes"); position != 0)
    fmt::print("scrub goes on at {} of {}\n", size(position), size(number(info, "volume_bytes")));
  fmt::print("\n{:>6} {:<11} {:>12} {:>12} {:>12}  {}\n", "MEMBER", "STATE", "BYTES", "READ ERRORS", "BAD BLOCKS",
             "NAME");
  for (const Json &member : info.at("members")) {
    std::string why = text(member, "why");
    if (member.at("slow").get<bool>()) why += (why.empty() ? "" : "; ") + std::string("slow: reads avoid it");
    fmt::print("{:>6} {:<11} {:>12} {:>12} {:>12}  {}{}\n", number(member, "index"), text(member, "state"),
               number(member, "size_bytes"), number(member, "read_error_count"), number(member, "bad_block_count"),
               text(member, "name"), why.empty() ? "" : fmt::format(" ({})", why));
  }
  return kExitDone;
}

bool is_told(const OutputFlags &output) { return !output.json && !output.quiet; }

int info(const AskFlags &flags) {
  return ask("info", flags, true, {{"command", "info"}},
             [&](const Json &answer) { return is_told(flags.output) ? print_info(answer) : kExitDone; });
}

int delay_begin(const DelayFlags &flags) {
  if ((flags.bound_bytes != 0 || flags.bound_seconds != 0) && flags.target.socket.empty())
    fail(kExitWrongUsage, "a bounded window ends with the process that has opened the volume: give --socket");
  Json request = {{"command", "delay-begin"}, {"offset_bytes", flags.offset_bytes}};
  if (flags.has_bytes) request["bytes"] = flags.bytes;
  if (flags.bound_bytes != 0) request["bound_bytes"] = flags.bound_bytes;
  if (flags.bound_seconds != 0) request["bound_seconds"] = flags.bound_seconds;
  return ask("delay begin", flags, false, request, [&](const Json &answer) {
    const std::string window = window_text(answer.at("window"));
    if (is_told(flags.output)) fmt::print("parity is delayed in: {}\n", window);
    if (is_told(flags.output) && !answer.at("bounded").is_null()) print_windows(answer);
    return kExitDone;
  });
}

int delay_end(const DelayFlags &flags) {
  if (flags.has_offset != flags.has_bytes)
    fail(kExitWrongUsage, "a window has --offset and --bytes; without both, all windows are ended");
  Json request = {{"command", "delay-end"}, {"accept_loss", flags.accept_loss}};
  if (flags.has_offset) request.update(Json{{"offset_bytes", flags.offset_bytes}, {"bytes", flags.bytes}});
  return ask("delay end", flags, false, request, [&](const Json &answer) {
    if (is_told(flags.output)) {
      for (const Json &window : answer.at("ended")) fmt::print("parity is up to date in: {}\n", window_text(window));
      if (answer.at("ended").empty()) fmt::print("no window is open\n");
    }
    return kExitDone;
  });
}

int delay_list(const DelayFlags &flags) {
  return ask("delay list", flags, true, {{"command", "delay-list"}}, [&](const Json &answer) {
    if (is_told(flags.output)) {
      print_windows(answer);
      if (answer.at("windows").empty()) fmt::print("no window is open\n");
    }
    return kExitDone;
  });
}

void tell_old(const CareFlags &flags, std::uint64_t count) {
  if (count != 0 && is_told(flags.output))
    fmt::print("{} old blocks: `{} volume scrub --repair` mends them\n",
               count == 1 ? "a member still holds" : "members still hold", program_name());
}

int scrub(const CareFlags &flags) {
  return ask(
      "scrub", flags, false,
      {{"command", "scrub"},
       {"repair", flags.repair},
       {"restart", flags.restart},
       {"rate_bytes_per_second", flags.rate_bytes_per_second}},
      [&](const Json &answer) -> int {
        const std::uint64_t lost = number(answer, "lost_block_count"),
                            missing = number(answer, "lost_count") + number(answer, "rebuilding_count"),
                            old = number(answer, "old_count");
        if (is_told(flags.output)) {
          fmt::print("{} of {}: {} with a wrong checksum or unreadable, {} that {} not match, {} mended, {}\n",
                     plural(number(answer, "block_count"), "block"), plural(number(answer, "stripe_count"), "stripe"),
                     number(answer, "bad_block_count"), plural(number(answer, "bad_parity_count"), "parity block"),
                     number(answer, "bad_parity_count") == 1 ? "does" : "do", number(answer, "mended_block_count"),
                     lost == 0 ? "none lost" : fmt::format("{} LOST", lost));
          if (const std::uint64_t open = number(answer, "unprotected_stripe_count"); open != 0)
            fmt::print("{} in windows of delayed parity: their parity was not looked at\n", plural(open, "stripe"));
          if (missing != 0)
            fmt::print("{} {} not whole: `{} volume info` names them, `replace` and `rebuild` bring them back\n",
                       plural(missing, "member"), missing == 1 ? "is" : "are", program_name());
        }
        tell_old(flags, old);
        if (lost != 0) return kExitNotRecoverable;
        return number(answer, "left_block_count") + missing + old != 0 ? kExitDamageFound : kExitDone;
      });
}

int rebuild(const CareFlags &flags) {
  return ask("rebuild", flags, false, {{"command", "rebuild"}, {"rate_bytes_per_second", flags.rate_bytes_per_second}},
             [&](const Json &answer) {
               if (is_told(flags.output))
                 fmt::print("{} rebuilt in {}\n", plural(number(answer, "mended_block_count"), "block"),
                            plural(number(answer, "stripe_count"), "stripe"));
               const std::uint64_t old = number(answer, "old_count");
               tell_old(flags, old);
               return old == 0 ? kExitDone : kExitDamageFound;
             });
}

int replace(const ReplaceFlags &flags) {
  const bool is_uri = flags.member.find("://") != std::string::npos;
  const std::string member = is_uri ? flags.member : std::filesystem::absolute(flags.member).string();
  return ask("replace", flags, false,
             {{"command", "replace"}, {"index", flags.index}, {"member", member}, {"force", flags.force}},
             [&](const Json &) {
               if (is_told(flags.output))
                 fmt::print("member {} is now {}; `{} volume rebuild` fills it\n", flags.index, printable(member),
                            program_name());
               return kExitDone;
             });
}

// ---- flags

void add_target_flags(CLI::App &command, AskFlags &flags) {
  command.add_option("MEMBER", flags.target.members, "Members of the volume");
  command
      .add_option("--socket", flags.target.socket, "Socket of a volume that is being served: the path given to `serve`")
      ->type_name("PATH");
  add_output_flags(command, flags.output);
}

template <class Flags>
void set_run(CLI::App &command, Invocation &invocation, const std::shared_ptr<Flags> &flags,
             int (*function)(const Flags &)) {
  command.callback([flags, function, &invocation] { invocation.run = [flags, function] { return function(*flags); }; });
}

void add_create(CLI::App &volume, Invocation &invocation) {
  const auto flags = std::make_shared<CreateFlags>();
  CLI::App &command = *volume.add_subcommand("create", "Make a volume of k + m members; it holds zeros");
  command.add_option("MEMBER", flags->members, "k + m members")->required();
  command.add_option("-k,--data", flags->k, "Data members, at least 1")->required();
  command
      .add_option("-m,--parity", flags->m,
                  fmt::format("Parity members, at least 1; k + m is at most {}", TANDEM_VOLUME_MAX_MEMBERS))
      ->required();
  command
      .add_option("--member-bytes", flags->member_bytes,
                  "Make files of this size, or resize them, such as 10G; default: they exist and keep their size")
      ->transform(size_value());
  command
      .add_option("--unit-bytes", flags->unit_bytes,
                  "Bytes of a member in one stripe: a multiple of 4096, at most 16M; default: 64k")
      ->transform(size_value());
  command
      .add_option("--log-bytes", flags->log_bytes,
                  "Bytes of the log on each member; default: a sixteenth of the smallest member, at most 32M")
      ->transform(size_value())
      ->group(kExpert);
  command.add_option("--matrix", flags->matrix, "Generator matrix (docs/matrices.md)")
      ->check(matrix_value(MatrixUse::sets))
      ->default_str("isal-cauchy")
      ->type_name("NAME");
  command
      .add_flag("--allow-non-mds", flags->allow_non_mds,
                "Accept a matrix that cannot recover from every loss of m members")
      ->group(kExpert);
  command.add_flag("--force", flags->force, "Overwrite members that are not empty: a file system, a volume, a file");
  add_output_flags(command, flags->output);
  set_run(command, invocation, flags, create);
}

void add_serve(CLI::App &volume, Invocation &invocation) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App &command = *volume.add_subcommand(
      "serve", "Serve a volume over NBD until SIGINT or SIGTERM, which flush and end it (nbdkit)");
  command.add_option("MEMBER", flags->members, "Members of the volume")->required();
  command
      .add_option("--socket", flags->socket,
                  "Unix socket for NBD clients. The control socket is beside it: PATH.control")
      ->type_name("PATH")
      ->capture_default_str();
  command
      .add_option("--port", flags->port,
                  "TCP port for NBD clients instead. There is no password: every client that reaches the port can "
                  "write. --socket still gives the place of the control socket")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{65535}));
  command.add_option("--address", flags->address, "With --port: the address to listen on")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command
      .add_option("--pid-file", flags->pid_file,
                  "Write the process number of the server here once it is ready; removed at its end")
      ->type_name("PATH");
  command.add_flag("--read-only", flags->read_only, "Write nothing, repair nothing");
  add_output_flags(command, flags->output);
  set_run(command, invocation, flags, serve_volume);
}

void add_delay(CLI::App &volume, Invocation &invocation) {
  CLI::App &delay =
      *volume.add_subcommand("delay", "Delayed parity: write data first, compute its parity when it is complete");
  delay.require_subcommand(1);
  const auto add = [&](const char *name, const char *help, int (*function)(const DelayFlags &)) -> CLI::App & {
    const auto flags = std::make_shared<DelayFlags>();
    CLI::App &command = *delay.add_subcommand(name, help);
    if (function != delay_list) {
      const bool begins = function == delay_begin;
      CLI::Option *offset = command
                                .add_option("--offset", flags->offset_bytes,
                                            begins ? "Where the window begins; default: 0"
                                                   : "As `begin` or `list` printed it; default: all windows")
                                ->transform(size_value());
      CLI::Option *bytes = command
                               .add_option("--bytes", flags->bytes,
                                           begins ? "Its length; default: to the end of the volume"
                                                  : "As printed there; default: all windows")
                               ->transform(size_value());
      if (begins) {
        command
            .add_option("--bound", flags->bound_bytes,
                        "A bounded window: smaller ones begin where writes are and end by themselves, together at most "
                        "this large, such as 1G; default with --seconds: 1 GiB")
            ->transform(size_value())
            ->check(CLI::PositiveNumber);
        command
            .add_option("--seconds", flags->bound_seconds,
                        "A bounded window: each smaller one begins to end after this time; default with --bound: 60")
            ->check(CLI::PositiveNumber);
      }
      if (!begins)
        command.add_flag("--accept-loss", flags->accept_loss,
                         "Replace data that is lost with a member by zeros; else the window stays open");
      add_target_flags(command, *flags);
      command.callback([flags, function, offset, bytes, &invocation] {
        flags->has_offset = offset->count() != 0;
        flags->has_bytes = bytes->count() != 0;
        invocation.run = [flags, function] { return function(*flags); };
      });
    } else {
      add_target_flags(command, *flags);
      set_run(command, invocation, flags, function);
    }
    return command;
  };
  add("begin", "Open a window, rounded inward to full stripes: parity is not updated in it", delay_begin);
  add("end", "Compute the parity of a window, and close it", delay_end);
  add("list", "List the open windows, also after a crash", delay_list);
}

void add_care(CLI::App &volume, Invocation &invocation) {
  const auto add = [&](const char *name, const char *help, int (*function)(const CareFlags &)) {
    const auto flags = std::make_shared<CareFlags>();
    CLI::App &command = *volume.add_subcommand(name, help);
    if (function == scrub) {
      command.add_flag("--repair", flags->repair, "Repair damage; default: report it by exit status 1");
      command.add_flag("--restart", flags->restart, "Start at the beginning; default: where the last scrub ended");
    }
    command
        .add_option("--rate", flags->rate_bytes_per_second,
                    "At most this many bytes of the volume per second, such as 100M; default: no limit")
        ->transform(size_value());
    add_target_flags(command, *flags);
    set_run(command, invocation, flags, function);
  };
  add("scrub", "Read everything, compare checksums and parity", scrub);
  add("rebuild", "Fill members that are new, stale or incomplete", rebuild);
}

void add_replace(CLI::App &volume, Invocation &invocation) {
  const auto flags = std::make_shared<ReplaceFlags>();
  CLI::App &command =
      *volume.add_subcommand("replace", "Replace a member by a new one; run `tandem volume rebuild` then");
  command.add_option("--index", flags->index, "Number of the member to replace, as `info` shows it")->required();
  command.add_option("--new", flags->member, "The new member; a file that does not exist is made")
      ->type_name("MEMBER")
      ->required();
  command.add_flag("--force", flags->force, "Overwrite a new member that is not empty");
  add_target_flags(command, *flags);
  set_run(command, invocation, flags, replace);
}

}  // namespace

Json volume_report(const std::string &name) { return {{"schema_version", 1}, {"command", "volume " + name}}; }

void add_volume_command(CLI::App &app, Invocation &invocation) {
  CLI::App &volume =
      *app.add_subcommand("volume", "A striped volume over k + m disks, files or NBD servers: make, serve, look after");
  volume.require_subcommand(1);
  volume.footer(kVolumeFooter);
  add_create(volume, invocation);
  const auto flags = std::make_shared<AskFlags>();
  CLI::App &info_command = *volume.add_subcommand("info", "Show a volume and the state of its members");
  add_target_flags(info_command, *flags);
  set_run(info_command, invocation, flags, info);
  add_serve(volume, invocation);
  add_delay(volume, invocation);
  add_care(volume, invocation);
  add_replace(volume, invocation);
}

}  // namespace tandem::cli
