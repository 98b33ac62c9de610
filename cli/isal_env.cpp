// SPDX-License-Identifier: Apache-2.0
// tandem isal-env
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/commands.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kLibraryName = "libisal.so.2";
constexpr const char *kRealFunction = "isal_deflate";  // every libisal has it, and ours leaves it to the real one

// The disposition that this process had at its start, for a started command: main ignores SIGPIPE.
const auto inherited_sigpipe = signal(SIGPIPE, SIG_IGN);

struct Flags {
  bool standalone = false, preload = false, print = false, install = false, status = false;
  std::string to;
};

// A link to nowhere counts.
bool occupied(const fs::path &path) { return fs::exists(fs::symlink_status(path)); }

// The chained build is a folder of three links: to our library, also under the name that PyPI's pyeclib opens, and to
// the real one, under the name that our library needs and looks for beside itself.
struct Builds {
  fs::path standalone, folder, chained, real;

  explicit Builds(const Flags &flags)
      : standalone(installed_part("isal/standalone/libisal.so.2", "")),
        folder(flags.to.empty() ? isal() / "chained" : fs::absolute(flags.to).lexically_normal()),
        chained(folder / kLibraryName),
        real(folder / "libisal-real.so.2") {}
  fs::path isal() const { return standalone.parent_path().parent_path(); }
};

// The machine's libisal: the one that the loader finds.
fs::path real_library() {
  void *const library = dlopen(kLibraryName, RTLD_NOW | RTLD_LOCAL);
  link_map *map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
    fail(kExitInputOutput, "the loader finds no libisal (", dlerror(),
         "); Debian, Ubuntu: apt-get install libisal2; else name its folder in LD_LIBRARY_PATH");
  Dl_info info = {};
  void *const function = dlsym(library, kRealFunction);
  if (function == nullptr || dladdr(function, &info) == 0 || std::strcmp(info.dli_fname, map->l_name) != 0)
    fail(kExitWrongUsage, map->l_name, " cannot be used by the chained library: it has no ", kRealFunction,
         " of its own");
  return fs::absolute(map->l_name).lexically_normal();
}

int install(const Flags &flags, const Builds &builds) {
  const fs::path real = real_library();
  const fs::path isal = flags.to.empty() ? ".." : builds.isal();  // relative in our own folder: a prefix may be moved
  const std::pair<fs::path, fs::path> links[] = {{builds.real, real},
                                                 {builds.folder / "libisal-pyeclib.so.2", kLibraryName},
                                                 {builds.chained, isal / "libisal-chained.so"}};
  for (const auto &[link, target] : links)
    if (occupied(link) && (!fs::is_symlink(link) || fs::read_symlink(link).filename() != target.filename()))
      fail(kExitWrongUsage, link.string(), " was not made by this command; remove it first");
  umask(022);
  fs::create_directories(builds.folder);
  for (const auto &[link, target] : links) {
    const std::string beside = fmt::format("{}.{}", link.string(), getpid());
    fs::create_symlink(target, beside);
    fs::rename(beside, link);  // a program that starts finds the old link or the new one
  }
  fmt::print("made {}\n  in front of {}, which keeps everything but erasure code and RAID\n",
             printable(builds.chained.string()), printable(real.string()));
  return kExitDone;
}

// Why the chained build cannot be used. Empty: it can.
std::string chained_problem(const Flags &flags, const Builds &builds) {
  for (const fs::path &path : {builds.chained, builds.real})
    if (!fs::exists(path))
      return fmt::format("{} is missing; `{} isal-env --install{}` makes the chained build",
                         (builds.folder / (occupied(path) ? fs::read_symlink(path) : path)).lexically_normal().string(),
                         program_name(), flags.to.empty() ? "" : " --to " + shell_word(flags.to));
  return "";
}

bool is_chained_chosen(const Flags &flags, const Builds &builds) {
  return !flags.standalone && (!flags.to.empty() || occupied(builds.chained));
}

int status(const Flags &flags, const Builds &builds) {
  const std::string problem = chained_problem(flags, builds);
  fmt::print("standalone  {}\nchained     {}\n            {}\ndefault     {}\n", printable(builds.standalone.string()),
             printable(builds.chained.string()),
             printable(problem.empty() ? "in front of " + fs::read_symlink(builds.real).string() : problem),
             is_chained_chosen(flags, builds) ? "chained" : "standalone");
  return kExitDone;
}

using Assignment = std::pair<const char *, std::string>;

std::vector<Assignment> assignments(const Flags &flags, const Builds &builds) {
  const bool chained = is_chained_chosen(flags, builds);
  if (const std::string problem = chained ? chained_problem(flags, builds) : ""; !problem.empty())
    fail(kExitInputOutput, problem);
  const fs::path library = chained ? builds.chained : builds.standalone;
  const char *const variable = flags.preload ? "LD_PRELOAD" : "LD_LIBRARY_PATH";
  std::string value = flags.preload ? library.string() : library.parent_path().string();
  if (value.find_first_of(flags.preload ? ":$ " : ":;$") != std::string::npos)
    fail(kExitWrongUsage, variable, " cannot hold ", value, ": it has a separator or a $ in it");
  const char *const before = std::getenv(variable);
  if (before != nullptr && *before != '\0')
    value = (std::string(before) + ':').starts_with(value + ':') ? before : value + ':' + before;
  std::vector<Assignment> all = {{variable, value}};
  // A program that needs more of ISA-L must fail at its start, not at its first call.
  if (!chained) all.emplace_back("LD_BIND_NOW", "1");
  return all;
}

// The libisal that a program gets although `folder` is in LD_LIBRARY_PATH, by a DT_RPATH of it or of a library that it
// needs. Empty: none.
std::string libisal_by_rpath(const std::string &program, const std::string &folder) {
  constexpr const char *kQuestion = R"sh(ldd "$(command -v -- {})" 2>/dev/null | grep -vF {}/ |
    sed -n 's/^\tlibisal\(-pyeclib\)\?\.so\.2 => \(.*\) (.*/\2/p')sh";
  FILE *const lines = popen(fmt::format(kQuestion, shell_word(program), shell_word(folder)).c_str(), "r");
  if (lines == nullptr) return "";
  char line[PATH_MAX] = "";
  while (std::fgets(line, sizeof line, lines) != nullptr) continue;
  pclose(lines);
  return std::string(line, std::strcspn(line, "\n"));
}

int run_command(const Flags &flags, const Builds &builds, std::vector<std::string> words) {
  const std::vector<Assignment> wanted = assignments(flags, builds);
  for (const auto &[variable, value] : wanted) setenv(variable, value.c_str(), 1);
  const std::string folder = wanted[0].second.substr(0, wanted[0].second.find(':'));
  if (const std::string other = flags.preload ? "" : libisal_by_rpath(words[0], folder); !other.empty())
    complain("note: ", words[0], " gets ", other,
             " by a DT_RPATH, which the loader heeds before LD_LIBRARY_PATH; --preload goes before that");
  std::vector<char *> arguments;
  for (std::string &word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  signal(SIGPIPE, inherited_sigpipe);
  execvp(arguments[0], arguments.data());
  // As env(1) and shells have it: 127 not found, 126 cannot be executed.
  fail(errno == ENOENT ? 127 : 126, "cannot execute ", words[0], ": ", std::strerror(errno));
}

int isal_env(const Flags &flags, const std::vector<std::string> &words) {
  if (!words.empty() && words[0].starts_with('-'))
    fail(kExitWrongUsage, "unknown option ", words[0], "; see ", program_name(), " isal-env --help");
  if (flags.print + flags.install + flags.status + !words.empty() != 1)
    fail(kExitWrongUsage, "one of COMMAND, --print, --install and --status is needed");
  const Builds builds(flags);
  if (flags.install) return install(flags, builds);
  if (flags.status) return status(flags, builds);
  if (!flags.print) return run_command(flags, builds, words);
  for (const auto &[variable, value] : assignments(flags, builds))
    fmt::print("export {}={}\n", variable, shell_word(value));
  return kExitDone;
}

}  // namespace

void add_isal_env_command(CLI::App &app, Invocation &invocation) {
  const auto flags = std::make_shared<Flags>();
  // prefix_command: all words from COMMAND on belong to that command.
  CLI::App *command = app.add_subcommand("isal-env", "Run a program built for ISA-L on Tandem")->prefix_command();
  CLI::Option *standalone = command->add_flag("--standalone", flags->standalone,
                                              "Only erasure code and RAID, also where the chained build is installed");
  CLI::Option *preload = command->add_flag("--preload", flags->preload,
                                           "Set LD_PRELOAD: for programs with their own copy of the functions");
  command->add_flag("--print", flags->print, "Print the assignments for a shell: eval \"$(tandem isal-env --print)\"");
  CLI::Option *install = command->add_flag("--install", flags->install,
                                           "Make the chained build, which has the rest from this machine's libisal");
  command->add_option("--to", flags->to, "The chained build's folder; default: chained/ beside the standalone build's")
      ->type_name("FOLDER")
      ->excludes(standalone);
  CLI::Option *status = command->add_flag("--status", flags->status, "Show both builds and the default");
  for (CLI::Option *each : {install, status}) each->excludes(standalone)->excludes(preload);
  command->footer(
      "The exit status is COMMAND's; 127 if it is not found, 126 if it cannot be executed, 2 wrong usage, 3 input or\n"
      "output failed. docs/isal.md lists the functions that are covered.");
  command->callback([flags, command, &invocation] {
    invocation.run = [flags, words = command->remaining()] { return isal_env(*flags, words); };
  });
}

}  // namespace tandem::cli
