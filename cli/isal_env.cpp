// SPDX-License-Identifier: Apache-2.0
// tandem isal-env
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "cli/commands.hpp"
#include "cli/shared_object.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLibraryName = "libisal.so.2";
constexpr const char *kPyeclibName = "libisal-pyeclib.so.2";  // what PyPI's pyeclib opens
constexpr const char *kTemplateName = "libisal-chained.so";
// The template names a library for the loader. This is the start of that name (isal/CMakeLists.txt).
constexpr std::string_view kPlaceholder = "/tandem-isal-real-library/";
// First functions that every libisal has and ours leaves to it, then functions that ours has too.
constexpr std::array<const char *, 4> kRealFunctions = {"crc32_ieee", "isal_deflate", "ec_encode_data",
                                                        "gf_invert_matrix"};

constexpr unsigned kProbeSeconds = 20;

// As env(1) and shells have it.
constexpr int kExitCannotExecute = 126;
constexpr int kExitCommandNotFound = 127;

// main ignores SIGPIPE. A started command gets the disposition that this process had at its start.
const auto inherited_sigpipe = [] {
  struct sigaction action = {};
  sigaction(SIGPIPE, nullptr, &action);
  return action.sa_handler;
}();

[[noreturn]] void fail(int exit_status, std::string message) { throw Failure{exit_status, std::move(message)}; }

struct Flags {
  bool standalone = false, chained = false, preload = false;
  bool print = false, install = false, uninstall = false, status = false;
  bool force = false, json = false;
  std::string real, to, probe;
};

// ---- where things are

// lib/tandem/isal, relative to the command's own folder, because a prefix may be moved.
fs::path isal_folder() {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  // First the place after installation, then the place in a build folder.
  const fs::path candidates[] = {own / TANDEM_LIBRARY_FROM_COMMAND, own / "../lib"};
  for (const fs::path &candidate : candidates) {
    const fs::path folder = candidate.lexically_normal() / "tandem" / "isal";
    if (fs::exists(folder / "standalone" / kLibraryName)) return folder;
  }
  fail(kExitInputOutput,
       fmt::format("{} is missing",
                   (candidates[0].lexically_normal() / "tandem/isal/standalone" / kLibraryName).string()));
}

struct Places {
  fs::path isal, chained_folder;

  explicit Places(const Flags &flags)
      : isal(isal_folder()),
        chained_folder(flags.to.empty() ? isal / "chained" : fs::absolute(flags.to).lexically_normal()) {}
  fs::path standalone() const { return isal / "standalone" / kLibraryName; }
  fs::path chained() const { return chained_folder / kLibraryName; }
  fs::path pyeclib() const { return chained_folder / kPyeclibName; }
};

std::string shown(const fs::path &path) { return printable(path.string()); }

// Whether the name exists. A link to nowhere counts.
bool occupied(const fs::path &path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::none) {
    fail(kExitInputOutput, fmt::format("cannot look for {}: {}", path.string(), error.message()));
  }
  return type != fs::file_type::not_found;
}

bool there(const fs::path &path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string read_file(const fs::path &path) {
  const fs::file_status status = fs::status(path);
  if (!fs::exists(status)) fail(kExitInputOutput, fmt::format("{} does not exist", path.string()));
  if (!fs::is_regular_file(status)) fail(kExitWrongUsage, fmt::format("{} is no regular file", path.string()));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || !content) {
    fail(kExitInputOutput, fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  }
  return std::move(content).str();
}

// The real library that a chained one, or its template, names. Null: this is not our chained library.
const NeededName *real_library_of(const SharedObject &object) {
  const NeededName *found = nullptr;
  for (const NeededName &needed : object.needed) {
    if (needed.name.empty() || needed.name[0] != '/') continue;
    if (found != nullptr) return nullptr;
    found = &needed;
  }
  return object.soname == kLibraryName ? found : nullptr;
}

// The path that the chained library at `path` names. Empty: this command did not make that file.
std::string chained_to(const fs::path &path) {
  try {
    const SharedObject object = read_shared_object(read_file(path));
    const NeededName *real = real_library_of(object);
    return real == nullptr ? "" : real->name;
  } catch (const std::invalid_argument &) {
    return "";
  } catch (const Failure &) {
    return "";
  }
}

// ---- loading a library in a child process, which may crash

struct Probe {
  std::string error;                   // empty: it loads
  std::string path;                    // as the loader names it
  std::vector<std::string> providers;  // the file that each of kRealFunctions comes from; empty: none has it
};

// Runs in the child: writes lines on standard output.
int run_probe(const std::string &name) {
  alarm(kProbeSeconds);  // a damaged hash table can keep the loader busy for ever
  void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  struct link_map *map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
    fmt::print("error\n{}\n", dlerror());
    return kExitDone;
  }
  fmt::print("loaded\n{}\n", map->l_name);
  for (const char *function : kRealFunctions) {
    Dl_info info = {};
    void *address = dlsym(library, function);
    const bool known = address != nullptr && dladdr(address, &info) != 0 && info.dli_fname != nullptr;
    fmt::print("{}\n", known ? info.dli_fname : "");
  }
  return kExitDone;
}

// Loads a name that the loader searches, or a path. The loader's variables are removed, as they would change the
// search.
Probe probe(const std::string &name) {
  std::vector<char *> environment;
  for (char **entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_", 3) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  std::string words[] = {"tandem", "isal-env", "--probe", name};
  char *arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(kExitInputOutput, fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t got; error == 0 && (got = read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got > 0) output.append(buffer, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  if (error != 0) fail(kExitInputOutput, fmt::format("cannot start a process: {}", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }

  Probe result;
  std::istringstream lines(output);
  std::string verdict;
  std::getline(lines, verdict);
  if (WIFSIGNALED(status)) {
    result.error = fmt::format("loading it ends a process with signal {}", WTERMSIG(status));
  } else if (verdict == "error") {
    std::getline(lines, result.error);
  } else if (verdict != "loaded") {
    result.error = fmt::format("loading it ends a process with status {}", WEXITSTATUS(status));
  }
  if (!result.error.empty()) return result;
  std::getline(lines, result.path);
  for (std::size_t i = 0; i < kRealFunctions.size(); ++i) std::getline(lines, result.providers.emplace_back());
  return result;
}

// ---- the real library

// A name that stays valid when the package is upgraded: the SONAME beside `path`, if it is the same file. Else `path`.
std::string lasting_name(const std::string &path, const std::string &soname) {
  const fs::path lasting = fs::path(path).parent_path() / soname;
  std::error_code error;
  return !soname.empty() && soname.find('/') == std::string::npos && fs::equivalent(lasting, path, error)
             ? lasting.string()
             : path;
}

// The path of the real library, for the chained one. Refuses a library that cannot serve.
std::string real_library(const Flags &flags, const Places &places, std::size_t most_bytes) {
  std::string path = flags.real;
  if (path.empty()) {
    const Probe found = probe(kLibraryName);
    if (!found.error.empty()) {
      fail(kExitInputOutput,
           fmt::format("this machine's loader finds no {} ({}); install it (Debian, Ubuntu: apt-get install libisal2) "
                       "or name it with --real",
                       kLibraryName, found.error));
    }
    path = found.path;
  }
  if (path[0] != '/') fail(kExitWrongUsage, fmt::format("--real {}: an absolute path is needed", path));
  if (path.find_first_of("$\n") != std::string::npos) {
    fail(kExitWrongUsage, fmt::format("{}: the loader cannot open a path that has $ or a line end", path));
  }
  const auto refuse = [&](std::string_view why) {
    fail(kExitWrongUsage, fmt::format("{} cannot be used by the chained library: {}", path, why));
  };
  SharedObject object;
  try {
    object = read_shared_object(read_file(path));
  } catch (const std::invalid_argument &reason) {
    refuse(reason.what());
  }
  std::error_code error;
  if (real_library_of(object) != nullptr || fs::equivalent(path, places.standalone(), error)) {
    refuse("it is one of Tandem's own");
  }
  const Probe loaded = probe(path);
  if (!loaded.error.empty()) refuse(loaded.error);
  for (std::size_t i = 0; i < kRealFunctions.size(); ++i) {
    if (loaded.providers[i].empty()) refuse(fmt::format("it has no {}, which a libisal has", kRealFunctions[i]));
    if (loaded.providers[i] != loaded.path) {
      refuse(fmt::format("its {} is not its own, but that of {}", kRealFunctions[i], loaded.providers[i]));
    }
  }
  path = lasting_name(path, object.soname);
  if (path.size() > most_bytes) {
    fail(kExitWrongUsage, fmt::format("{}... is too long a path: {} bytes, {} are possible", path.substr(0, 64),
                                      path.size(), most_bytes));
  }
  return path;
}

// ---- --install, --uninstall

[[noreturn]] void fail_at(std::string_view action, const fs::path &path) {
  fail(kExitInputOutput, fmt::format("cannot {} {}: {}", action, path.string(), std::strerror(errno)));
}

// Writes a file beside `path` and renames it. An open of `path` finds the old file or the new one.
void replace_file(const fs::path &path, std::string_view content, mode_t mode) {
  std::string beside = path.string() + ".XXXXXX";
  const int file = mkostemp(beside.data(), O_CLOEXEC);
  if (file < 0) fail_at("write", path);
  const auto give_up = [&] {
    const int error = errno;
    unlink(beside.c_str());
    errno = error;
    fail_at("write", path);
  };
  bool written = true;
  for (std::size_t done = 0; written && done < content.size();) {
    const ssize_t now = write(file, content.data() + done, content.size() - done);
    if (now > 0) done += static_cast<std::size_t>(now);
    written = now >= 0 || errno == EINTR;
  }
  written = written && fchmod(file, mode) == 0 && fsync(file) == 0;
  if (const int error = errno; close(file) != 0 || !written) {
    if (!written) errno = error;
    give_up();
  }
  const Probe loaded = probe(beside);
  if (!loaded.error.empty()) {
    unlink(beside.c_str());
    fail(kExitInputOutput, fmt::format("the new {} does not load: {}", path.string(), loaded.error));
  }
  if (rename(beside.c_str(), path.c_str()) != 0) give_up();
}

void replace_link(const fs::path &path, const char *target) {
  const std::string beside = fmt::format("{}.{}", path.string(), getpid());
  if (symlink(target, beside.c_str()) != 0 || rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    errno = error;
    fail_at("make the link", path);
  }
}

// Runs before any change. A file that this command did not make is replaced or removed only with --force.
void refuse_strangers(const Places &places, const Flags &flags, std::string_view action) {
  if (flags.force) return;
  const auto refuse = [&](const fs::path &path) {
    fail(kExitWrongUsage, fmt::format("{} was not made by this command; --force {} it", path.string(), action));
  };
  std::error_code error;
  if (occupied(places.chained()) && chained_to(places.chained()).empty()) refuse(places.chained());
  if (occupied(places.pyeclib()) && fs::read_symlink(places.pyeclib(), error) != kLibraryName) refuse(places.pyeclib());
}

// What the chained library is made from.
struct Template {
  std::string content;
  std::size_t offset_bytes = 0, room_bytes = 0;  // of the path of the real library

  explicit Template(const Places &places) {
    const fs::path from = places.isal / kTemplateName;
    content = read_file(from);
    try {
      const SharedObject object = read_shared_object(content);
      const NeededName *placeholder = real_library_of(object);
      if (placeholder == nullptr || placeholder->name.compare(0, kPlaceholder.size(), kPlaceholder) != 0) {
        throw std::invalid_argument("it names no library to be replaced");
      }
      offset_bytes = placeholder->offset_bytes;
      room_bytes = placeholder->name.size();
    } catch (const std::invalid_argument &reason) {
      fail(kExitInputOutput, fmt::format("{} is not as it was installed: {}", from.string(), reason.what()));
    }
  }

  std::string chained_to(const std::string &real) const {
    std::string made = content;
    return made.replace(offset_bytes, room_bytes, real + std::string(room_bytes - real.size(), '\0'));
  }
};

// Whether --install would make the same chained build, with `real` behind it. After an upgrade of Tandem it would not.
bool is_current(const Places &places, const std::string &real) {
  if (!there(places.isal / kTemplateName)) return true;  // nothing to compare with
  const Template from(places);
  return real.size() <= from.room_bytes && read_file(places.chained()) == from.chained_to(real);
}

std::string refresh() {
  return fmt::format("made by another version of Tandem: {} isal-env --install makes it anew", program_name());
}

// Folders that --install makes. They get the mode of our own folder, independent of the umask. A failure removes them.
class NewFolders {
 public:
  NewFolders() = default;
  ~NewFolders() {
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());
  }
  NewFolders(const NewFolders &) = delete;
  NewFolders &operator=(const NewFolders &) = delete;

  void make(const fs::path &folder, mode_t mode) {
    if (occupied(folder)) return;
    make(folder.parent_path(), mode);
    if (mkdir(folder.c_str(), mode) != 0) fail_at("make the folder", folder);
    made_.push_back(folder);
    if (chmod(folder.c_str(), mode) != 0) fail_at("open to others the folder", folder);
  }
  void keep() { made_.clear(); }

 private:
  std::vector<fs::path> made_;  // outermost first
};

int install(Flags flags) {
  const Places places(flags);
  const Template from(places);
  // A chained build keeps the library that it leads to.
  if (flags.real.empty() && occupied(places.chained())) {
    const std::string before = chained_to(places.chained());
    if (!before.empty() && there(before)) flags.real = before;
  }
  const std::string real = real_library(flags, places, from.room_bytes);
  const std::string content = from.chained_to(real);

  refuse_strangers(places, flags, "replaces");
  std::error_code error;
  const bool same = fs::is_regular_file(places.chained(), error) && read_file(places.chained()) == content;
  const bool same_link = fs::read_symlink(places.pyeclib(), error) == kLibraryName;
  if (same && same_link) {
    fmt::print("{} is there already, in front of {}\n", shown(places.chained()), printable(real));
    return kExitDone;
  }
  NewFolders folders;
  folders.make(places.chained_folder, static_cast<mode_t>(fs::status(places.isal).permissions()));
  if (!same) replace_file(places.chained(), content, 0755);
  if (!same_link) replace_link(places.pyeclib(), kLibraryName);
  folders.keep();
  fmt::print("made {}\n  in front of {}, which keeps everything but erasure code and RAID\n", shown(places.chained()),
             printable(real));
  const fs::path tandem = places.chained_folder / "../../.." / fmt::format("libtandem.so.{}", TANDEM_VERSION_MAJOR);
  if (!fs::exists(tandem, error)) {
    fmt::print("  note: without libtandem three folders above it, TANDEM_ISAL_BACKEND and _THREADS have no effect\n");
  }
  return kExitDone;
}

int uninstall(const Flags &flags) {
  const Places places(flags);
  if (!occupied(places.chained()) && !occupied(places.pyeclib())) {
    fmt::print("{} is not there; nothing to remove\n", shown(places.chained()));
    return kExitDone;
  }
  refuse_strangers(places, flags, "removes");
  std::vector<std::string> removed;
  for (const fs::path &path : {places.pyeclib(), places.chained()}) {
    if (unlink(path.c_str()) == 0) {
      removed.push_back(path.string());
    } else if (errno != ENOENT) {
      fail_at("remove", path);
    }
  }
  rmdir(places.chained_folder.c_str());  // if nothing else is in it
  // Name the library, or if it was gone already, the link. The link of a library needs no mention.
  if (!removed.empty()) fmt::print("removed {}\n", printable(removed.back()));
  return kExitDone;
}

// ---- --status

std::string interface_version(const fs::path &standalone) {
  void *library = dlopen(standalone.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(kExitInputOutput, dlerror());
  const auto version = reinterpret_cast<const char *(*)()>(dlsym(library, "isal_get_version_str"));
  if (version == nullptr) fail(kExitInputOutput, fmt::format("{} is not Tandem's", standalone.string()));
  return version();
}

int status(const Flags &flags) {
  const Places places(flags);
  const std::string version = interface_version(places.standalone());
  const bool installed = occupied(places.chained());
  const std::string real = installed ? chained_to(places.chained()) : "";
  const bool real_exists = !real.empty() && there(real);
  const bool current = !real.empty() && is_current(places, real);
  const std::string by_default = installed ? "chained" : "standalone";
  if (flags.json) {
    nlohmann::ordered_json chained = {
        {"name", "chained"}, {"library", places.chained().string()}, {"installed", installed}};
    chained["real_library"] = real.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(real);
    chained["real_library_exists"] = real_exists;
    chained["current"] = current;
    const nlohmann::ordered_json standalone = {
        {"name", "standalone"}, {"library", places.standalone().string()}, {"installed", true}};
    const nlohmann::ordered_json object = {{"command", "isal-env"},
                                           {"interface_version", version},
                                           {"default", by_default},
                                           {"builds", nlohmann::ordered_json::array({standalone, chained})}};
    print_json(object);
    return kExitDone;
  }
  const std::string install = fmt::format("{} isal-env --install", program_name());
  const std::string state = !installed     ? "not there: " + install
                            : real.empty() ? "not made by this command"
                            : real_exists  ? "in front of " + real
                                           : "in front of " + real + ", WHICH IS GONE: " + install;
  fmt::print("interface   ISA-L {}, erasure code and RAID\n", version);
  fmt::print("standalone  {}\n", shown(places.standalone()));
  fmt::print("chained     {}\n            {}\n", shown(places.chained()), printable(state));
  if (!real.empty() && !current) fmt::print("            {}\n", refresh());
  fmt::print("default     {}\n", by_default);
  return kExitDone;
}

// ---- COMMAND, --print

struct Assignment {
  const char *variable;
  std::string value;
};

fs::path chosen_library(const Flags &flags, const Places &places) {
  const bool installed = occupied(places.chained());
  if (flags.standalone || (!flags.chained && !installed)) return places.standalone();
  if (!installed) {
    fail(kExitInputOutput,
         fmt::format("{} is not there; `{} isal-env --install` makes it", places.chained().string(), program_name()));
  }
  const std::string real = chained_to(places.chained());
  if (real.empty()) fail(kExitInputOutput, fmt::format("{} is not Tandem's", places.chained().string()));
  if (!there(real)) {
    fail(kExitInputOutput, fmt::format("{} leads to {}, which is gone; `{} isal-env --install` leads it elsewhere",
                                       places.chained().string(), real, program_name()));
  }
  if (!is_current(places, real)) complain(fmt::format("note: {} is {}", places.chained().string(), refresh()));
  return places.chained();
}

std::vector<Assignment> assignments(const Flags &flags) {
  const Places places(flags);
  const fs::path library = chosen_library(flags, places);
  Assignment way = flags.preload ? Assignment{"LD_PRELOAD", library.string()}
                                 : Assignment{"LD_LIBRARY_PATH", library.parent_path().string()};
  if (way.value.find_first_of(flags.preload ? ":$ " : ":;$") != std::string::npos) {
    fail(kExitWrongUsage, fmt::format("{} cannot hold {}: it has a separator or a $ in it", way.variable, way.value));
  }
  const char *const set = std::getenv(way.variable);
  const std::string_view before = set != nullptr ? set : "";
  const bool already = before == way.value || before.substr(0, way.value.size() + 1) == way.value + ':';
  if (already) {
    way.value = before;
  } else if (!before.empty()) {
    way.value = fmt::format("{}:{}", way.value, before);
  }
  std::vector<Assignment> all = {way};
  // A program that needs more of ISA-L must fail at its start, not at its first call.
  if (library == places.standalone()) all.push_back({"LD_BIND_NOW", "1"});
  return all;
}

// As one word for a shell.
std::string quoted(const std::string &text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,@%";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char character : text) result += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return result + "'";
}

int print(const Flags &flags) {
  for (const Assignment &wanted : assignments(flags)) {
    fmt::print("export {}={}\n", wanted.variable, quoted(wanted.value));
  }
  return kExitDone;
}

// The file that execvp would run for a command. Empty: there is none.
fs::path program_of(const std::string &command) {
  if (command.find('/') != std::string::npos) return command;
  const char *path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / command;
    std::error_code error;
    if (fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

// The libisal that a program has by its own DT_RPATH, where the loader looks before LD_LIBRARY_PATH; empty: none.
std::string libisal_by_rpath(const fs::path &program) {
  try {
    const SharedObject object = read_shared_object(read_file(program), ObjectKind::program_too);
    const std::string origin = fs::canonical(program).parent_path().string();
    std::istringstream folders(object.rpath);
    for (std::string folder; std::getline(folders, folder, ':');) {
      for (const std::string_view word : {"$ORIGIN", "${ORIGIN}"}) {
        std::size_t at = 0;
        for (; (at = folder.find(word, at)) != std::string::npos; at += origin.size())
          folder.replace(at, word.size(), origin);
      }
      for (const char *name : {kLibraryName, kPyeclibName}) {
        const fs::path library = fs::path(folder.empty() ? "." : folder) / name;
        if (there(library)) return library.string();
      }
    }
  } catch (const std::exception &) {  // a script or another file: execvp reports what is wrong
  } catch (const Failure &) {
  }
  return "";
}

int run_command(const Flags &flags, std::vector<std::string> words) {
  if (!flags.preload) {
    const fs::path program = program_of(words[0]);
    const std::string library = program.empty() ? "" : libisal_by_rpath(program);
    if (!library.empty()) {
      complain(
          fmt::format("note: {} has a DT_RPATH, which the loader heeds before LD_LIBRARY_PATH: it gets {}; --preload "
                      "goes before that",
                      program.string(), library));
    }
  }
  for (const Assignment &wanted : assignments(flags)) {
    if (setenv(wanted.variable, wanted.value.c_str(), 1) != 0) fail(kExitInputOutput, std::strerror(errno));
  }
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  signal(SIGPIPE, inherited_sigpipe);
  execvp(arguments[0], arguments.data());
  fail(errno == ENOENT ? kExitCommandNotFound : kExitCannotExecute,
       fmt::format("cannot execute {}: {}", words[0], std::strerror(errno)));
}

// `words`: COMMAND and what follows it; `after_dashes`: what stood after the first `--`.
int isal_env(const Flags &flags, std::vector<std::string> words,
             const std::optional<std::vector<std::string>> &after_dashes) {
  if (!flags.probe.empty()) return run_probe(flags.probe);
  if (!words.empty() && words[0].substr(0, 1) == "-") {
    fail(kExitWrongUsage, fmt::format("unknown option {}; see {} isal-env --help", words[0], program_name()));
  }
  if (after_dashes) {
    if (!words.empty()) words.push_back("--");  // it is one of COMMAND's own
    words.insert(words.end(), after_dashes->begin(), after_dashes->end());
  }
  const int action_count = flags.print + flags.install + flags.uninstall + flags.status + !words.empty();
  if (action_count != 1) {
    fail(kExitWrongUsage, "one of COMMAND, --print, --install, --uninstall and --status is needed");
  }
  const bool chooses = flags.standalone || flags.chained || flags.preload;
  if (chooses && (flags.install || flags.uninstall || flags.status)) {
    fail(kExitWrongUsage, "--standalone, --chained and --preload go with COMMAND and --print");
  }
  if (!flags.real.empty() && !flags.install) fail(kExitWrongUsage, "--real goes with --install");
  if (flags.force && !flags.install && !flags.uninstall) {
    fail(kExitWrongUsage, "--force goes with --install and --uninstall");
  }
  if (flags.json && !flags.status) fail(kExitWrongUsage, "--json goes with --status");
  if (flags.install) return install(flags);
  if (flags.uninstall) return uninstall(flags);
  if (flags.status) return status(flags);
  return flags.print ? print(flags) : run_command(flags, words);
}

}  // namespace

void add_isal_env_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<Flags>();
  CLI::App *command = app.add_subcommand("isal-env", "Run a program that is built for ISA-L on Tandem");
  command->prefix_command();  // all words from COMMAND on belong to that command
  CLI::Option *standalone =
      command->add_flag("--standalone", flags->standalone,
                        "Only erasure code and RAID: a program that needs more of ISA-L does not start");
  command
      ->add_flag("--chained", flags->chained,
                 "Erasure code and RAID, and the rest from the machine's own libisal; default if it is installed")
      ->excludes(standalone);
  command->add_flag("--preload", flags->preload,
                    "Set LD_PRELOAD, not LD_LIBRARY_PATH: for programs with their own copy of the functions");
  command->add_flag("--print", flags->print, "Print the assignments for a shell: eval \"$(tandem isal-env --print)\"");
  command->add_flag("--install", flags->install, "Make the chained build for this machine's libisal");
  command->add_option("--real", flags->real, "The libisal to chain to; default: the one that the loader finds")
      ->type_name("PATH");
  command->add_option("--to", flags->to, "The chained build's folder; default: chained/ beside the standalone build's")
      ->type_name("FOLDER");
  command->add_flag("--force", flags->force, "Also replace or remove files that this command has not made");
  command->add_flag("--uninstall", flags->uninstall, "Remove the chained build");
  command->add_flag("--status", flags->status, "Show both builds and what the chained one leads to");
  command->add_flag("--json", flags->json, "With --status: print one JSON object");
  command->add_option("--probe", flags->probe)->group("");  // this command in a child process
  command->footer(
      "The exit status is COMMAND's; 127 if it is not found, 126 if it cannot be executed, 2 wrong usage, 3 input or\n"
      "output failed. docs/ISAL.md lists the functions that are covered.");
  command->callback([flags, command, &invocation] {
    invocation.run = [flags, words = command->remaining(), &invocation] {
      return isal_env(*flags, words, invocation.words_after_dashes);
    };
  });
}

}  // namespace tandem::cli
