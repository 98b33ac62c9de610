// SPDX-License-Identifier: Apache-2.0
// tandem isal-env
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLibraryName = "libisal.so.2";
constexpr const char *kPyeclibName = "libisal-pyeclib.so.2";  // what PyPI's pyeclib opens
constexpr const char *kRealName = "libisal-real.so.2";  // what the chained library needs, and looks for beside itself
constexpr const char *kChainedName = "libisal-chained.so";

// Every libisal has this function, and ours leaves it to the real one.
constexpr const char *kRealFunction = "isal_deflate";
constexpr unsigned kLoadSeconds = 20;

// As env(1) and shells have it.
constexpr int kExitCannotExecute = 126;
constexpr int kExitCommandNotFound = 127;

// main ignores SIGPIPE. A started command gets the disposition that this process had at its start.
const auto inherited_sigpipe = [] {
  struct sigaction action = {};
  sigaction(SIGPIPE, nullptr, &action);
  return action.sa_handler;
}();

[[noreturn]] void fail_at(std::string_view action, const fs::path &path) {
  fail(kExitInputOutput, "cannot ", action, " ", path.string(), ": ", std::strerror(errno));
}

struct Flags {
  bool standalone = false, chained = false, preload = false;
  bool print = false, install = false, uninstall = false, status = false;
  bool force = false, json = false;
  std::string real, to;
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
  fail(kExitInputOutput, (candidates[0].lexically_normal() / "tandem/isal/standalone" / kLibraryName).string(),
       " is missing: `make demo` does not build it; build all of Tandem (cmake --build build)");
}

std::string shown(const fs::path &path) { return printable(path.string()); }

// As one word for a shell.
std::string shell_word(const std::string &text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:,@%";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char character : text) result += character == '\'' ? std::string("'\\''") : std::string(1, character);
  return result + "'";
}

std::string install_command(const Flags &flags) {
  return fmt::format("{} isal-env --install{}", program_name(),
                     flags.to.empty() ? "" : " --to " + shell_word(flags.to));
}

// Whether the name exists. A link to nowhere counts.
bool occupied(const fs::path &path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::none) fail(kExitInputOutput, "cannot look for ", path.string(), ": ", error.message());
  return type != fs::file_type::not_found;
}

bool there(const fs::path &path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Where a symbolic link leads. Empty: the path is none.
fs::path target_of(const fs::path &link) {
  std::error_code error;
  return fs::read_symlink(link, error);
}

// The chained build is a folder of three links: to our library, under two names, and to the real one.
struct Places {
  fs::path isal, chained_folder;

  explicit Places(const Flags &flags)
      : isal(isal_folder()),
        chained_folder(flags.to.empty() ? isal / "chained" : fs::absolute(flags.to).lexically_normal()) {}
  fs::path standalone() const { return isal / "standalone" / kLibraryName; }
  fs::path chained() const { return chained_folder / kLibraryName; }
  fs::path pyeclib() const { return chained_folder / kPyeclibName; }
  fs::path real() const { return chained_folder / kRealName; }
  bool chained_is_ours() const { return target_of(chained()).filename() == kChainedName; }
};

// ---- the real library

struct Loaded {
  std::string path;     // as the loader names it
  std::string trouble;  // empty: it can serve
};

Loaded load(const std::string &name) {
  void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  struct link_map *map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {"", dlerror()};
  Dl_info info = {};
  void *function = dlsym(library, kRealFunction);
  if (function == nullptr || dladdr(function, &info) == 0) {
    return {map->l_name, fmt::format("it has no {}, which a libisal has", kRealFunction)};
  }
  if (std::strcmp(info.dli_fname, map->l_name) != 0) {
    return {map->l_name, fmt::format("its {} is not its own, but that of {}", kRealFunction, info.dli_fname)};
  }
  return {map->l_name, ""};
}

// Loads a path, or a name that the loader searches, in a child process: a damaged library may crash it or hang.
Loaded load_in_child(const std::string &name) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(kExitInputOutput, "cannot open a pipe: ", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) fail(kExitInputOutput, "cannot start a process: ", std::strerror(errno));
  if (child == 0) {
    alarm(kLoadSeconds);
    const Loaded loaded = load(name);
    const std::string answer = loaded.path + '\0' + loaded.trouble;
    _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return {"", fmt::format("loading it ends a process with signal {}", WTERMSIG(status))};
  const std::size_t end = answer.find('\0');
  if (end == std::string::npos)
    return {"", fmt::format("loading it ends a process with status {}", WEXITSTATUS(status))};
  return {answer.substr(0, end), answer.substr(end + 1)};
}

// The path of the real library, for the chained one. Refuses a library that cannot serve.
fs::path real_library(const Flags &flags, const Places &places) {
  fs::path path = flags.real;
  if (path.empty() && there(places.real())) path = target_of(places.real());  // a chained build keeps its library
  if (!path.empty()) {
    path = fs::absolute(path).lexically_normal();
    if (!there(path)) fail(kExitInputOutput, path.string(), " does not exist");
  }
  const Loaded loaded = load_in_child(path.empty() ? kLibraryName : path.string());
  if (path.empty() && loaded.path.empty()) {
    fail(kExitInputOutput, "this machine's loader finds no ", kLibraryName, " (", loaded.trouble,
         "); install it (Debian, Ubuntu: apt-get install libisal2) or name it with --real");
  }
  if (path.empty()) path = fs::path(loaded.path).lexically_normal();
  std::error_code error;
  std::string trouble = loaded.trouble;
  for (const fs::path &own : {places.standalone(), places.isal / kChainedName})
    if (fs::equivalent(path, own, error)) trouble = "it is one of Tandem's own";
  if (!trouble.empty()) fail(kExitWrongUsage, path.string(), " cannot be used by the chained library: ", trouble);
  // The name that stays when the package is upgraded, if it is there and means the same file.
  const fs::path lasting = path.parent_path() / kLibraryName;
  return fs::equivalent(lasting, path, error) ? lasting : path;
}

// ---- --install, --uninstall

// Runs before any change. What this command did not make is replaced or removed only with --force.
void refuse_strangers(const Places &places, const Flags &flags, std::string_view action) {
  if (flags.force) return;
  const auto refuse_unless = [&](bool ours, const fs::path &path) {
    if (ours || !occupied(path)) return;
    fail(kExitWrongUsage, path.string(), " was not made by this command; --force ", action, " it");
  };
  refuse_unless(places.chained_is_ours(), places.chained());
  refuse_unless(target_of(places.pyeclib()) == kLibraryName, places.pyeclib());
  refuse_unless(!target_of(places.real()).empty(), places.real());
}

// An open of `path` finds the old file or the new one.
void replace_link(const fs::path &path, const fs::path &target) {
  const std::string beside = fmt::format("{}.{}", path.string(), getpid());
  if (symlink(target.c_str(), beside.c_str()) != 0 || rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    errno = error;
    fail_at("make the link", path);
  }
}

int install(const Flags &flags) {
  const Places places(flags);
  refuse_strangers(places, flags, "replaces");
  const fs::path real = real_library(flags, places);
  // Relative in our own folder: a prefix may be moved.
  const fs::path chained = (flags.to.empty() ? fs::path("..") : places.isal) / kChainedName;
  const std::pair<fs::path, fs::path> links[] = {
      {places.real(), real}, {places.pyeclib(), kLibraryName}, {places.chained(), chained}};
  if (std::ranges::all_of(links, [](const auto &link) { return target_of(link.first) == link.second; })) {
    fmt::print("{} is there already, in front of {}\n", shown(places.chained()), shown(real));
    return kExitDone;
  }
  // New folders are as open to other users as our own, with any umask.
  umask(~static_cast<mode_t>(fs::status(places.isal).permissions()) & 0777);
  fs::create_directories(places.chained_folder);
  for (const auto &[path, target] : links) replace_link(path, target);
  fmt::print("made {}\n  in front of {}, which keeps everything but erasure code and RAID\n", shown(places.chained()),
             shown(real));
  return kExitDone;
}

int uninstall(const Flags &flags) {
  const Places places(flags);
  refuse_strangers(places, flags, "removes");
  bool removed = false;
  for (const fs::path &path : {places.chained(), places.pyeclib(), places.real()}) {
    if (unlink(path.c_str()) == 0) {
      removed = true;
    } else if (errno != ENOENT) {
      fail_at("remove", path);
    }
  }
  rmdir(places.chained_folder.c_str());  // if nothing else is in it
  fmt::print("{} {}\n", removed ? "removed the chained build in" : "nothing to remove in",
             shown(places.chained_folder));
  return kExitDone;
}

// ---- --status

std::string interface_version(const fs::path &standalone) {
  void *library = dlopen(standalone.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(kExitInputOutput, dlerror());
  const auto version = reinterpret_cast<const char *(*)()>(dlsym(library, "isal_get_version_str"));
  if (version == nullptr) fail(kExitInputOutput, standalone.string(), " is not Tandem's");
  return version();
}

// The first link of the chained build that leads nowhere. Empty: none.
fs::path broken_link(const Places &places) {
  for (const fs::path &link : {places.chained(), places.real()})
    if (!there(link)) return link;
  return {};
}

std::string broken_text(const Flags &flags, const fs::path &link) {
  const fs::path target = target_of(link);
  const fs::path gone = target.empty() ? link : (link.parent_path() / target).lexically_normal();
  return fmt::format("{} is gone; `{}` makes the chained build again", gone.string(), install_command(flags));
}

int status(const Flags &flags) {
  const Places places(flags);
  const std::string version = interface_version(places.standalone());
  const bool installed = occupied(places.chained()), ours = places.chained_is_ours();
  const std::string real = ours ? target_of(places.real()).string() : "";
  const std::string by_default = installed ? "chained" : "standalone";
  if (flags.json) {
    Json chained = {{"name", "chained"}, {"library", places.chained().string()}, {"installed", installed}};
    chained["real_library"] = real.empty() ? Json(nullptr) : Json(real);
    chained["real_library_exists"] = !real.empty() && there(places.real());
    const Json standalone = {{"name", "standalone"}, {"library", places.standalone().string()}, {"installed", true}};
    const Json object = {{"command", "isal-env"},
                         {"interface_version", version},
                         {"default", by_default},
                         {"builds", Json::array({standalone, chained})}};
    print_json(object);
    return kExitDone;
  }
  const fs::path broken = broken_link(places);
  const std::string state = !installed       ? "not there: " + install_command(flags)
                            : !ours          ? "not made by this command"
                            : broken.empty() ? "in front of " + real
                                             : broken_text(flags, broken);
  fmt::print("interface   ISA-L {}, erasure code and RAID\n", version);
  fmt::print("standalone  {}\n", shown(places.standalone()));
  fmt::print("chained     {}\n            {}\n", shown(places.chained()), printable(state));
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
  if (!installed)
    fail(kExitInputOutput, places.chained().string(), " is not there; `", install_command(flags), "` makes it");
  if (!places.chained_is_ours()) fail(kExitInputOutput, places.chained().string(), " is not Tandem's");
  const fs::path broken = broken_link(places);
  if (!broken.empty()) fail(kExitInputOutput, broken_text(flags, broken));
  return places.chained();
}

std::vector<Assignment> assignments(const Flags &flags, const Places &places, const fs::path &library) {
  Assignment way = flags.preload ? Assignment{"LD_PRELOAD", library.string()}
                                 : Assignment{"LD_LIBRARY_PATH", library.parent_path().string()};
  if (way.value.find_first_of(flags.preload ? ":$ " : ":;$") != std::string::npos)
    fail(kExitWrongUsage, way.variable, " cannot hold ", way.value, ": it has a separator or a $ in it");
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

int print(const Flags &flags) {
  const Places places(flags);
  for (const Assignment &wanted : assignments(flags, places, chosen_library(flags, places))) {
    fmt::print("export {}={}\n", wanted.variable, shell_word(wanted.value));
  }
  return kExitDone;
}

// The libisal that a program gets although Tandem's folder is in LD_LIBRARY_PATH, by a DT_RPATH of it or of a library
// that it needs. Empty: none. The loader itself says so, without starting the program.
std::string libisal_by_rpath(const std::string &program, const fs::path &folder) {
  Dl_info loader = {};
  if (dladdr(reinterpret_cast<const void *>(getauxval(AT_BASE)), &loader) == 0) return "";
  const std::string question =
      fmt::format("{} --list \"$(command -v -- {})\" 2>/dev/null", loader.dli_fname, shell_word(program));
  FILE *const lines = popen(question.c_str(), "r");
  if (lines == nullptr) return "";
  std::string found;
  char line[8192];
  while (std::fgets(line, sizeof line, lines) != nullptr) {
    for (const char *name : {kLibraryName, kPyeclibName}) {
      const std::string before = fmt::format("\t{} => ", name);
      const std::string_view text = line;
      if (!text.starts_with(before)) continue;
      const std::string_view path = text.substr(before.size(), text.rfind(" (") - before.size());
      if (fs::path(path).parent_path() != folder) found = path;
    }
  }
  pclose(lines);
  return found;
}

int run_command(const Flags &flags, std::vector<std::string> words) {
  const Places places(flags);
  const fs::path library = chosen_library(flags, places);
  for (const Assignment &wanted : assignments(flags, places, library)) {
    if (setenv(wanted.variable, wanted.value.c_str(), 1) != 0) fail(kExitInputOutput, std::strerror(errno));
  }
  if (const std::string other = flags.preload ? "" : libisal_by_rpath(words[0], library.parent_path());
      !other.empty()) {
    complain("note: ", words[0], " gets ", other,
             " by a DT_RPATH, which the loader heeds before LD_LIBRARY_PATH; --preload goes before that");
  }
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  signal(SIGPIPE, inherited_sigpipe);
  execvp(arguments[0], arguments.data());
  fail(errno == ENOENT ? kExitCommandNotFound : kExitCannotExecute, "cannot execute ", words[0], ": ",
       std::strerror(errno));
}

// `words`: COMMAND and what follows it; `after_dashes`: what stood after the first `--`.
int isal_env(const Flags &flags, std::vector<std::string> words,
             const std::optional<std::vector<std::string>> &after_dashes) {
  if (!words.empty() && words[0].substr(0, 1) == "-")
    fail(kExitWrongUsage, "unknown option ", words[0], "; see ", program_name(), " isal-env --help");
  if (after_dashes) {
    if (!words.empty()) words.push_back("--");  // it is one of COMMAND's own
    words.insert(words.end(), after_dashes->begin(), after_dashes->end());
  }
  const int action_count = flags.print + flags.install + flags.uninstall + flags.status + !words.empty();
  if (action_count != 1)
    fail(kExitWrongUsage, "one of COMMAND, --print, --install, --uninstall and --status is needed");
  const bool chooses = flags.standalone || flags.chained || flags.preload;
  if (chooses && (flags.install || flags.uninstall || flags.status))
    fail(kExitWrongUsage, "--standalone, --chained and --preload go with COMMAND and --print");
  if (!flags.real.empty() && !flags.install) fail(kExitWrongUsage, "--real goes with --install");
  if (flags.force && !flags.install && !flags.uninstall)
    fail(kExitWrongUsage, "--force goes with --install and --uninstall");
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
  command->footer(
      "The exit status is COMMAND's; 127 if it is not found, 126 if it cannot be executed, 2 wrong usage, 3 input or\n"
      "output failed. docs/isal.md lists the functions that are covered.");
  command->callback([flags, command, &invocation] {
    invocation.run = [flags, words = command->remaining(), &invocation] {
      return isal_env(*flags, words, invocation.words_after_dashes);
    };
  });
}

}  // namespace tandem::cli
