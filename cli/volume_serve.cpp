// SPDX-License-Identifier: Apache-2.0
// `tandem volume serve`: runs nbdkit with the plugin of volume/nbdkit_plugin.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/volume.hpp"
#include "volume/control_server.hpp"

extern char **environ;

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// The process that gets our signals.
volatile sig_atomic_t child = 0;
void pass_on(int number) {
  const int error = errno;
  // nbdkit ends cleanly by SIGINT and SIGTERM, but perhaps not by SIGHUP.
  if (child > 0) kill(child, number == SIGHUP ? SIGTERM : number);
  errno = error;
}

struct Pipe {
  base::Descriptor from, to;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail(kExitInputOutput, "cannot open a pipe: ", std::strerror(errno));
    from = base::Descriptor(ends[0]);
    to = base::Descriptor(ends[1]);
  }
};

// Starts `words` with the other end of the pipe as descriptor 3. It gets signals that arrive meanwhile afterwards.
void start(std::vector<std::string> words, const Pipe &reports) {
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  sigset_t ours, before;
  sigemptyset(&ours);
  for (const int each : kSignals) sigaddset(&ours, each);
  sigprocmask(SIG_BLOCK, &ours, &before);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, reports.to.get(), 3);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &before);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) child = pid;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (error == ENOENT) fail(kExitWrongUsage, "nbdkit is not installed (Debian, Ubuntu: apt-get install nbdkit)");
  if (error != 0) fail(kExitInputOutput, "cannot start nbdkit: ", std::strerror(error));
}

// The next line that the plugin writes. None: the plugin has ended.
std::optional<Json> next_report(const Pipe &reports, std::string &buffer) {
  for (;;) {
    if (const std::size_t end = buffer.find('\n'); end != std::string::npos) {
      // Any other way is ambiguous with nlohmann-json 3.12.
      std::optional<Json> line(std::in_place, Json::parse(buffer.substr(0, end)));
      buffer.erase(0, end + 1);
      return line;
    }
    char part[4096];
    const ssize_t now = read(reports.from.get(), part, sizeof part);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return std::nullopt;
    buffer.append(part, static_cast<std::size_t>(now));
  }
}

// Tells systemd or another supervisor that the volume is served: sd_notify(3), without its library. A
// supervisor that does not answer is no failure of ours.
void notify(std::string_view state) {
  const char *const name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = name != nullptr ? std::strlen(name) : 0;
  if (length < 2 || length > sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = '\0';  // in the abstract namespace
  const base::Descriptor sender(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!sender) return;
  sendto(sender.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&address),
         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

int wait_for_child() {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail(kExitInputOutput, "cannot wait for nbdkit: ", std::strerror(errno));
  child = 0;
  return status;
}

std::string percent_encoded(const std::string &path) {
  std::string text;
  for (const char each : path) {
    const bool plain = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
                       std::string_view("/._-~").find(each) != std::string_view::npos;
    text += plain ? std::string(1, each) : fmt::format("%{:02X}", static_cast<unsigned char>(each));
  }
  return text;
}

int serve(const ServeFlags &flags, Json &object) {
  const std::string socket = fs::absolute(flags.socket).lexically_normal().string();
  const std::string control = control_path(socket);
  // Enough requests at once to keep every member busy; nbdkit's own number is 16.
  const std::size_t threads = std::clamp<std::size_t>(8 * flags.members.size(), 16, 128);
  std::vector<std::string> words = {"nbdkit", "--foreground", "--exit-with-parent", "--threads",
                                    std::to_string(threads)};
  std::string uri;
  if (flags.port != 0) {
    words.insert(words.end(), {"--ipaddr", flags.address, "--port", std::to_string(flags.port)});
    const bool is_ipv6 = flags.address.find(':') != std::string::npos;
    uri = fmt::format("nbd://{}:{}", is_ipv6 ? '[' + flags.address + ']' : flags.address, flags.port);
  } else {
    words.insert(words.end(), {"--unix", socket});
    uri = "nbd+unix:///?socket=" + percent_encoded(socket);
  }
  if (flags.read_only) words.push_back("--readonly");
  words.push_back(installed_part("nbdkit-tandem-plugin.so",
                                 "it is built where the headers of nbdkit are installed (Debian, Ubuntu: apt-get "
                                 "install nbdkit-plugin-dev); "));
  for (const std::string &member : flags.members) words.push_back("member=" + member);
  words.insert(words.end(), {"control=" + control, "report=3"});
  if (flags.read_only) words.push_back("read-only=true");
  try {
    volume::remove_dead_socket(control);  // checks the length of the longer path too
    if (flags.port == 0) volume::remove_dead_socket(socket);
  } catch (const std::runtime_error &error) {
    fail(kExitInputOutput, error.what());
  }

  if (!flags.pid_file.empty()) {  // an older server's may be there, and nothing else is replaced
    std::string old(64, '\0');
    std::ifstream file(flags.pid_file);
    old.resize(static_cast<std::size_t>(file.read(old.data(), 64).gcount()));
    if (old.find_first_not_of("0123456789\n") != std::string::npos)
      fail(kExitInputOutput, flags.pid_file, " exists and is no pid file");
  }

  struct sigaction handler = {};
  handler.sa_handler = pass_on;
  sigemptyset(&handler.sa_mask);
  for (const int each : kSignals) {
    struct sigaction before = {};
    sigaction(each, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(each, &handler, nullptr);  // nohup's setting stays
  }
  Pipe reports;
  start(std::move(words), reports);
  reports.to.reset();

  std::string buffer;
  bool serving = false;
  std::optional<Json> last;
  const auto end = [&] {
    const int status = wait_for_child();
    if (serving && !flags.pid_file.empty()) unlink(flags.pid_file.c_str());
    return status;
  };
  try {
    while (const auto report = next_report(reports, buffer)) {
      last = report;
      if (report->at("event") != "serving") continue;
      if (!flags.pid_file.empty() && !(std::ofstream(flags.pid_file) << child << std::endl))
        fail(kExitInputOutput, "cannot write ", flags.pid_file, ": ", std::strerror(errno));
      serving = true;
      object.update({{"event", "serving"}, {"uri", uri}, {"control", control}, {"read_only", flags.read_only}});
      if (flags.output.json)
        print_json(object);
      else if (!flags.output.quiet)
        fmt::print("Serving at {}\nControl socket {}\n", printable(uri), printable(control));
      std::fflush(stdout);
      notify("READY=1");
    }
  } catch (...) {
    kill(child, SIGTERM);
    end();
    throw;
  }
  const int status = end();
  if (flags.port == 0 && serving) {
    try {
      volume::remove_dead_socket(socket);
    } catch (const std::runtime_error &) {
      // Another server has taken the name.
    }
  }
  if (WIFSIGNALED(status))
    fail(kExitInputOutput, "nbdkit was killed by signal ", WTERMSIG(status),
         "; what was not flushed may be lost. The next start brings the volume to its last flush");
  if (last && last->at("status") != TANDEM_OK)
    fail(exit_status_of(last->at("status").get<std::int32_t>()), last->at("message").get<std::string>());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !last || last->at("event") != "closed")
    fail(kExitInputOutput, "nbdkit ended with status ", WEXITSTATUS(status),
         serving ? "" : " before it served the volume; it says above why");
  if (!flags.output.quiet && !flags.output.json) fmt::print("Everything is flushed and closed\n");
  return kExitDone;
}

}  // namespace

int serve_volume(const ServeFlags &flags) {
  Json object = volume_report("serve");
  try {
    return serve(flags, object);
  } catch (const Failure &failure) {
    if (flags.output.json) {
      object["event"] = "failed";
      object["exit_status"] = failure.exit_status;
      object["message"] = failure.message;
      print_json(object);
    }
    throw;
  }
}

}  // namespace tandem::cli
