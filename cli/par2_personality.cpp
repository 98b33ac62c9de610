// SPDX-License-Identifier: Apache-2.0
// The program `par2`: options, exit statuses and the lines of output that other programs read are those of par2cmdline.
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "base/rounding.hpp"
#include "base/text.hpp"
#include "cli/par2.hpp"
#include "cli/program.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

enum Par2Exit : int {
  kPar2Done = 0,
  kPar2RepairPossible = 1,
  kPar2RepairNotPossible = 2,
  kPar2BadArguments = 3,
  kPar2TooLittleData = 4,
  kPar2RepairFailed = 5,
  kPar2FileError = 6,
  kPar2LogicError = 7,
  kPar2MemoryError = 8
};

constexpr const char *kPar2Help =
    R"(par2, part of Tandem: recovery files beside files that stay as they are (PAR 2.0)

  par2 c(reate) [options] SET.par2 FILE...     make the files of a set
  par2 c(reate) [options] FILE                 the same, for one file: FILE.par2
  par2 v(erify) [options] SET.par2 [FILE...]   check the files of a set
  par2 r(epair) [options] SET.par2 [FILE...]   check them, and repair them
  par2 -h | -V | -VV                           print this help, the version, the version and the licence

par2create, par2verify and par2repair are names for the same program. verify and repair also take SET.par, of
PAR 1.0. FILEs of verify and repair are searched for renamed, joined, split or shifted data. Repair copies those that
lie outside of the basepath. `*` and `?` in the last part of a FILE stand for names.
A number may stand right after the letter of its option, or be the next word.

All:
  -a<file>   The set; then the first FILE is an ordinary one
  -B<path>   Set the basepath: the folder that names of files are relative to; default: that of the set
  -v, -q     Print more, or less; -q -q prints only errors
  -m<n>      Memory in MiB; default: 64
  -t<n>      Threads; default: one for each core
  -T<n>      Without effect: all threads read and hash
  --         What follows are names
  @LIST, @   Names from a file or from standard input, one a line
verify, repair:
  -p         When all files are right, delete the set's .par2 files (or .par, .p01, ...)
  -O         Only rename files
  -N         Without effect: data is found at each offset
  -N -S<n>   Find data only up to n bytes away from where a block may begin
create:
  -b<n>      Cut the files into at most n blocks; default: blocks of a 2,000th of all bytes
  -s<n>      Bytes of a block, a multiple of 4
  -r<n>      Recovery data in per cent of the blocks, also more than 100; default: 5
  -rk<n>, -rm<n>, -rg<n>   As many recovery blocks as fit into n KiB, MiB, GiB; n may be 1.5
  -c<n>      Number of recovery blocks
  -f<n>      Number of the first recovery block
  -u         Recovery files of equal size
  -l         No recovery file is larger than the largest file
  -n<n>      Number of recovery files, at most 31, of equal size
  -R         Also the files in folders
  -L         Also files that symbolic links point to

Exit status: 0 done, 1 repair is possible, 2 repair is not possible, 3 wrong options, 4 the set's own data is damaged,
5 repair failed, 6 input or output failed, 7 internal error, 8 out of memory.
)";

enum class Par2Command { create, verify, repair };

// A letter of an option, and what follows it.
struct Par2Letter {
  char letter;
  enum Value { none, repeated, number, text } value;
  enum Uses { all, create, verify } uses;
  std::uint64_t least = 0, most = 0;  // of a number
};
constexpr std::uint64_t kPar2MostNumber = std::uint64_t{1} << 40;
constexpr Par2Letter kPar2Letters[] = {
    {'a', Par2Letter::text, Par2Letter::all},
    {'B', Par2Letter::text, Par2Letter::all},
    {'v', Par2Letter::repeated, Par2Letter::all},
    {'q', Par2Letter::repeated, Par2Letter::all},
    {'m', Par2Letter::number, Par2Letter::all, 1, kPar2MostNumber},
    {'t', Par2Letter::number, Par2Letter::all, 1, 1024},
    {'T', Par2Letter::number, Par2Letter::all, 1, 1024},
    {'p', Par2Letter::none, Par2Letter::verify},
    {'O', Par2Letter::none, Par2Letter::verify},
    {'N', Par2Letter::none, Par2Letter::verify},
    {'S', Par2Letter::number, Par2Letter::verify, 1, UINT32_MAX},
    {'b', Par2Letter::number, Par2Letter::create, 1, TANDEM_PAR2_MAX_SLICES},
    {'s', Par2Letter::number, Par2Letter::create, 4, kPar2MostNumber},
    {'r', Par2Letter::number, Par2Letter::create, 1, 1000000},
    {'c', Par2Letter::number, Par2Letter::create, 0, 32768},
    {'f', Par2Letter::number, Par2Letter::create, 0, 65534},
    {'u', Par2Letter::none, Par2Letter::create},
    {'l', Par2Letter::none, Par2Letter::create},
    {'n', Par2Letter::number, Par2Letter::create, 1, 31},
    {'R', Par2Letter::none, Par2Letter::create},
    {'L', Par2Letter::none, Par2Letter::create},
};

template <class... Parts>
[[noreturn]] void refuse(const Parts &...sentence) {
  fail(kPar2BadArguments, sentence...);
}

// "." for no folder.
std::string folder_or_dot(const fs::path &path) { return path.empty() ? "." : path.string(); }

// The command line.
class Par2Words {
 public:
  Par2Words(Par2Command command, std::vector<std::string> words) : command_(command), words_(std::move(words)) {
    bool may_be_option = true;
    while (next_ < words_.size()) {
      const std::string word = words_[next_++];
      if (may_be_option && word == "--") {
        may_be_option = false;
      } else if (may_be_option && word.size() > 1 && word[0] == '-') {
        take_option(word);
      } else if (may_be_option && word.starts_with('@')) {
        take_list(word.substr(1));
      } else {
        take_name(word);
      }
    }
    check_together();
    set_ = text('a');
    if (set_.empty() && !names_.empty()) {
      set_ = names_.front();
      names_.erase(names_.begin());
    }
    if (set_.empty()) refuse("You must specify a Recovery file.");
  }

  Par2Command command() const { return command_; }
  const std::string &set() const { return set_; }
  std::string base() const { return has('B') ? text('B') : folder_or_dot(fs::path(set_).parent_path()); }
  const std::vector<std::string> &names() const { return names_; }
  bool has(char letter) const { return numbers_.contains(letter) || texts_.contains(letter); }
  std::uint64_t number(char letter, std::uint64_t otherwise = 0) const {
    const auto found = numbers_.find(letter);
    return found != numbers_.end() ? found->second : otherwise;
  }
  std::string text(char letter) const {
    const auto found = texts_.find(letter);
    return found != texts_.end() ? found->second : "";
  }
  bool has_recovery_bytes() const { return has_recovery_bytes_; }  // -r is no per cent
  int noise() const { return static_cast<int>(number('v')) - static_cast<int>(number('q')); }
  std::uint64_t memory_bytes() const { return number('m') << 20; }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(number('t')); }
  ContextFlags context() const {
    ContextFlags flags;
    flags.thread_count = threads();
    return flags;
  }

 private:
  void take_option(const std::string &word) {
    const char letter = word[1];
    const auto *known = std::ranges::find(kPar2Letters, letter, &Par2Letter::letter);
    if (known == std::end(kPar2Letters)) refuse("Invalid option specified: " + word);
    const bool creates = command_ == Par2Command::create;
    if (known->uses == (creates ? Par2Letter::verify : Par2Letter::create))
      refuse("Cannot specify -", letter, " ", creates ? "when" : "unless", " creating.");
    std::string value = word.substr(2);
    if (known->value == Par2Letter::repeated && value.find_first_not_of(letter) == std::string::npos) {
      numbers_[letter] += 1 + value.size();
      return;
    }
    if (known->value == Par2Letter::none && value.empty()) {
      numbers_[letter] = 1;
      return;
    }
    if (known->value == Par2Letter::none || known->value == Par2Letter::repeated)
      refuse("Invalid option specified: " + word);
    if (has(letter)) refuse("Cannot specify -", letter, " twice.");
    if (value.empty() && next_ < words_.size()) value = words_[next_++];
    if (letter == 'r' && !value.empty()) {
      const std::size_t unit = std::string_view("kmg").find(value[0]);
      if (unit != std::string_view::npos) {
        value.erase(0, 1);
        const auto units = base::number_in<double>(value);
        const double bytes = units.value_or(-1) * static_cast<double>(std::uint64_t{1024} << (10 * unit));
        if (!(bytes >= 0 && bytes <= 1024.0 * kPar2MostNumber) ||
            value.find_first_not_of("0123456789.") != std::string::npos)
          refuse("Invalid value of -r: ", value, " is no number, or too large");
        has_recovery_bytes_ = true;
        numbers_[letter] = static_cast<std::uint64_t>(bytes);
        return;
      }
    }
    if (known->value == Par2Letter::text) {
      if (value.empty()) refuse("-", letter, " needs a value.");
      texts_[letter] = value;
      return;
    }
    const auto number = base::number_in<std::uint64_t>(value);
    if (!number || *number < known->least || *number > known->most) {
      refuse(letter == 't' || letter == 'T' ? fmt::format("Invalid thread option: -{}{}", letter, value)
                                            : fmt::format("Invalid value of -{}: {} is no number from {} to {}", letter,
                                                          value, known->least, known->most));
    }
    if (letter == 'r' && *number > 100)
      write_standard_error(fmt::format("WARNING: Creating recovery file(s) with {}% redundancy.\n", *number));
    numbers_[letter] = *number;
  }

  void check_together() {
    const auto exclude = [&](char a, char b, const char *what) {
      if (has(a) && has(b)) refuse("Cannot specify ", what, " (-", a, " and -", b, ").");
    };
    exclude('b', 's', "both block count and block size");
    exclude('c', 'r', "both recovery block count and redundancy");
    exclude('u', 'l', "two schemes of recovery files");
    exclude('n', 'l', "recovery file count when recovery files have a limit");
    if (number('s') % 4 != 0) refuse("Block size must be a multiple of 4.");
  }

  void take_list(const std::string &path) {
    std::ifstream file;
    if (!path.empty()) {
      file.open(path);
      if (!file) refuse("Cannot open the list of files ", path);
    }
    std::istream &lines = path.empty() ? std::cin : file;
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) names_.push_back(line);
    }
    if (lines.bad()) fail(kPar2FileError, "Cannot read the list of files ", path);
  }

  // Callers without a shell pass wildcards.
  void take_name(const std::string &word) {
    const fs::path path(word);
    std::string pattern = path.filename();
    std::error_code error;
    if (pattern.find_first_of("*?") == std::string::npos || fs::exists(fs::symlink_status(path, error))) {
      names_.push_back(word);
      return;
    }
    for (std::size_t at = 0; (at = pattern.find_first_of("[\\", at)) != std::string::npos; at += 2)
      pattern.insert(at, "\\");
    std::set<std::string> found;
    const fs::path folder = path.parent_path();
    fs::directory_iterator each(folder_or_dot(folder), error), end;
    for (; !error && each != end; each.increment(error))
      if (fnmatch(pattern.c_str(), each->path().filename().c_str(), FNM_PERIOD) == 0)
        found.insert(folder / each->path().filename());
    names_.insert(names_.end(), found.begin(), found.end());
  }

  const Par2Command command_;
  const std::vector<std::string> words_;
  std::size_t next_ = 0;
  std::map<char, std::uint64_t> numbers_;
  std::map<char, std::string> texts_;
  bool has_recovery_bytes_ = false;
  std::string set_;
  std::vector<std::string> names_;
};

// Names stay as they are, for programs that read them, but keep on their line.
std::string on_one_line(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return name;
}

// Lines on standard output. Level 0 is the normal one; -1 is also printed with -q, and nothing with -q -q.
class Par2Output {
 public:
  explicit Par2Output(int noise) : noise_(noise) {}

  template <class... Values>
  void line(int level, fmt::format_string<Values...> format, Values &&...values) const {
    if (noise_ >= level) fmt::print("{}\n", on_one_line(fmt::format(format, std::forward<Values>(values)...)));
  }
  // Several lines, without names.
  template <class... Values>
  void lines(int level, fmt::format_string<Values...> format, Values &&...values) const {
    if (noise_ >= level) fmt::print(format, std::forward<Values>(values)...);
  }
  // Runs `call` with progress, "Scanning: 12.3%", and sets the callback of `options`.
  template <class Options, class Call>
  tandem_status run(const char *label, Options &options, Call call) const {
    std::fflush(stdout);
    Signals state{{"", OutputFlags{false, true}}, noise_ >= 0 ? label : nullptr};
    options.progress = Signals::callback;
    options.progress_user = &state;
    return call();
  }

 private:
  struct Signals {
    Progress signals;
    const char *label;
    std::uint64_t last = 0;  // in thousandths

    static std::int32_t callback(void *user, std::uint64_t done_bytes, std::uint64_t total_bytes) {
      auto &self = *static_cast<Signals *>(user);
      const double part = total_bytes != 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 0;
      const auto now = static_cast<std::uint64_t>(1000 * std::min(part, 1.0));
      if (self.label != nullptr && now != self.last) {
        fmt::print("{}: {}.{}%\r", self.label, now / 10, now % 10);
        std::fflush(stdout);
        self.last = now;
      }
      return Progress::callback(&self.signals, done_bytes, total_bytes);
    }
  };

  const int noise_;
};

// The library's failure with par2cmdline's exit status.
Failure as_par2(const Failure &failure) {
  constexpr std::pair<tandem_status, int> kKnown[] = {
      {TANDEM_ERROR_INVALID_ARGUMENT, kPar2BadArguments},     {TANDEM_ERROR_TOO_LARGE, kPar2BadArguments},
      {TANDEM_ERROR_UNSUPPORTED, kPar2TooLittleData},         {TANDEM_ERROR_DAMAGED, kPar2RepairFailed},
      {TANDEM_ERROR_NOT_RECOVERABLE, kPar2RepairNotPossible}, {TANDEM_ERROR_IO, kPar2FileError},
      {TANDEM_ERROR_OUT_OF_MEMORY, kPar2MemoryError},
  };
  if (failure.status == TANDEM_OK || failure.status == TANDEM_ERROR_CANCELLED) return failure;
  std::string message = failure.message;
  for (const int full : {ENOSPC, EDQUOT})  // SABnzbd looks for these words
    if (message.find(std::strerror(full)) != std::string::npos)
      message = "There is not enough space on the disk: " + failure.message;
  for (const auto &[status, exit_status] : kKnown)
    if (status == failure.status) return {exit_status, message};
  return {kPar2LogicError, message};
}

// ---- create

class Par2Creation {
 public:
  Par2Creation(const Par2Words &words, const Par2Output &output) : words_(words), output_(output) {
    std::error_code error;
    base_ = fs::canonical(words.base(), error);
    if (error) refuse("Cannot open the basepath ", words.base(), ": ", error.message());
  }

  int run() {
    std::error_code error;
    const std::string &set = words_.set(), path = set.ends_with(".par2") ? set : set + ".par2";
    if (fs::exists(fs::symlink_status(path, error))) refuse("Par2 file already exists: ", path);
    find_par2_sources();
    choose_blocks();
    std::vector<const char *> paths;
    for (const auto &[name, source] : sources_) paths.push_back(source.path.c_str());
    auto options = sized<tandem_par2_create_options>();
    const std::string base = base_;
    options.path = words_.set().c_str();
    options.base_path = base.c_str();
    options.source_paths = paths.data();
    options.source_count = paths.size();
    options.slice_bytes = block_bytes_;
    options.recovery_slice_count = recovery_count_;
    options.first_exponent = static_cast<std::uint32_t>(words_.number('f'));
    options.volumes = volumes_;
    options.volume_count = static_cast<std::uint32_t>(words_.number('n'));
    options.thread_count = words_.threads();
    options.memory_bytes = words_.memory_bytes();
    output_.lines(0, "\nBlock size: {}\nSource file count: {}\nSource block count: {}\nRecovery block count: {}\n\n",
                  block_bytes_, sources_.size(), block_count_, recovery_count_);
    for (const auto &[name, source] : sources_) output_.line(-1, "Opening: {}", name);
    const ContextOwner context = make_context(words_.context());
    auto result = sized<tandem_par2_create_result>();
    check(output_.run("Processing", options, [&] { return tandem_par2_create(context.get(), &options, &result); }));
    output_.lines(0, "Recovery file count: {}\nWrote {} bytes to disk\n", result.packet_file_count - 1,
                  result.packet_file_bytes);
    output_.line(-1, "Done");
    return kPar2Done;
  }

 private:
  struct Source {
    std::string path;
    std::uint64_t bytes;
  };

  void find_par2_sources() {
    const bool is_primary = words_.names().empty() && !words_.has('a');  // the set has the name of its only file
    if (is_primary) {
      add(words_.set(), true);
    } else {
      for (const std::string &name : words_.names()) add(name, false);
    }
    if (sources_.empty()) refuse("You must specify a list of files when creating.");
  }

  void add(const std::string &path, bool is_primary) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    const bool is_link = fs::is_symlink(fs::symlink_status(path, error));
    if (status.type() == fs::file_type::none && !is_link) {
      fail(kPar2FileError, "Cannot look at ", path, ": ", error.message());
    } else if (!fs::exists(status)) {
      output_.line(-1, "Ignoring non-existent source file: {}", path);
    } else if (is_link && (fs::is_directory(status) || !(is_primary || words_.has('L')))) {
      output_.line(-1, "Ignoring symbolic link: {}", path);
    } else if (fs::is_regular_file(status)) {
      add_file(path);
    } else if (!fs::is_directory(status)) {
      output_.line(-1, "Ignoring special file: {}", path);
    } else if (!words_.has('R')) {
      output_.line(-1, "Ignoring folder, without -R: {}", path);
    } else {
      for (fs::recursive_directory_iterator each(path, error), end; !error && each != end; each.increment(error)) {
        std::error_code ignored;
        const fs::file_status kind = words_.has('L') ? each->status(ignored) : each->symlink_status(ignored);
        if (fs::is_regular_file(kind)) add_file(each->path());
      }
      if (error) fail(kPar2FileError, "Cannot list ", path, ": ", error.message());
    }
  }

  void add_file(const fs::path &path) {
    std::error_code error;
    const fs::path folder = fs::canonical(folder_or_dot(path.parent_path()), error);
    const std::string name = (folder / path.filename()).lexically_relative(base_);
    const std::uint64_t bytes = fs::file_size(path, error);
    if (name.starts_with("../")) {
      output_.line(-1, "Ignoring out of basepath source file: {}", path.string());
    } else {
      sources_.try_emplace(name, Source{path, bytes});
    }
  }

  std::uint64_t blocks(std::uint64_t block_bytes) const {
    std::uint64_t count = 0;
    for (const auto &[name, source] : sources_) count += base::divide_up(source.bytes, block_bytes);
    return count;
  }

  void choose_blocks() {
    const auto largest = std::ranges::max_element(sources_, {}, [](const auto &each) { return each.second.bytes; });
    const auto file_count = static_cast<std::uint64_t>(
        std::ranges::count_if(sources_, [](const auto &each) { return each.second.bytes != 0; }));
    std::uint64_t all = 0;
    for (const auto &[name, source] : sources_) all += source.bytes;
    const std::uint64_t wanted = words_.number('b', TANDEM_PAR2_MAX_SLICES);
    if (wanted < file_count)
      refuse("Block count (", wanted, ") is smaller than the number of files (", file_count, ").");
    block_bytes_ =
        words_.number('s', words_.has('b') ? 0 : std::max<std::uint64_t>(base::divide_up(all, 8000u) * 4, 4));
    if (block_bytes_ == 0 || (!words_.has('s') && blocks(block_bytes_) > wanted)) {  // the smallest one that suffices
      std::uint64_t low = 1, high = largest->second.bytes / 4 + 1;
      while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        (blocks(4 * middle) <= wanted ? high : low) = blocks(4 * middle) <= wanted ? middle : middle + 1;
      }
      block_bytes_ = 4 * high;
    }
    block_count_ = blocks(block_bytes_);
    volumes_ = words_.has('l')                      ? TANDEM_PAR2_LIMITED
               : words_.has('u') || words_.has('n') ? TANDEM_PAR2_UNIFORM
                                                    : TANDEM_PAR2_DOUBLING;
    if (words_.has('c')) {
      recovery_count_ = static_cast<std::uint32_t>(words_.number('c'));
    } else if (words_.has_recovery_bytes()) {
      constexpr std::uint64_t kPacketHeader = 68, kMost = 65535;
      const std::uint64_t count = words_.number('r') / (block_bytes_ + kPacketHeader);
      if (count == 0) refuse("No recovery block of ", block_bytes_, " bytes fits into that size.");
      recovery_count_ = static_cast<std::uint32_t>(std::min(count, kMost - words_.number('f')));
    } else if (const std::uint64_t percent = words_.number('r', 5); percent != 0 && block_count_ != 0) {
      recovery_count_ = static_cast<std::uint32_t>(std::max<std::uint64_t>((block_count_ * percent + 50) / 100, 1));
    }
    if (words_.number('n') > recovery_count_) refuse("Too many recovery files specified.");
  }

  const Par2Words &words_;
  const Par2Output &output_;
  fs::path base_;
  std::map<std::string, Source> sources_;  // by name in the set
  std::uint64_t block_bytes_ = 0, block_count_ = 0;
  std::uint32_t recovery_count_ = 0;
  std::int32_t volumes_ = TANDEM_PAR2_DOUBLING;
};

// ---- verify and repair

class Par2Check {
 public:
  Par2Check(const Par2Words &words, const Par2Output &output) : words_(words), output_(output), base_(words.base()) {}

  int run() {
    verify_files();
    print_packet_files();
    print_files();
    const tandem_par2_summary &summary = report_->summary;
    if (summary.repair_needed == 0) {
      output_.line(-1, "All files are correct, repair is not required.");
      if (words_.command() == Par2Command::repair && can_repair_some(*report_)) check(call_repair());
      purge();
      return kPar2Done;
    }
    print_need();
    const bool is_work = words_.has('O') ? summary.renamed_count != 0 : can_repair_some(*report_);
    return words_.command() == Par2Command::repair && is_work ? repair_files() : status_of_need();
  }

 private:
  int status_of_need() const {
    if (report_->summary.unreadable_count != 0) return kPar2FileError;
    return report_->summary.repair_possible != 0 ? kPar2RepairPossible : kPar2RepairNotPossible;
  }

  void verify_files() {
    const std::vector<const char *> extra = pointers(words_.names());
    auto options = sized<tandem_par2_verify_options>();
    options.path = words_.set().c_str();
    options.base_path = base_.c_str();
    options.extra_paths = extra.data();
    options.extra_count = extra.size();
    options.thread_count = words_.threads();
    if (words_.has('N')) options.search_distance = static_cast<std::uint32_t>(words_.number('S'));
    tandem_par2_report *report = nullptr;
    const tandem_status status =
        output_.run("Scanning", options, [&] { return tandem_par2_verify(&options, &report); });
    std::error_code error;
    if (status == TANDEM_ERROR_IO && !fs::exists(words_.set(), error))
      refuse("The recovery file does not exist: ", words_.set());
    if (status == TANDEM_ERROR_DAMAGED && base_of_set(words_.set()) == words_.set() &&
        !fs::exists(words_.set() + ".par2", error) && !fs::exists(words_.set() + ".par", error))
      refuse("You must specify a Recovery file: ", words_.set(), " is none.");
    constexpr std::pair<tandem_status, const char *> kLines[] = {
        {TANDEM_ERROR_DAMAGED, "Main packet not found: "},
        {TANDEM_ERROR_NOT_RECOVERABLE, "No details available for recoverable file: "},
        {TANDEM_ERROR_TOO_LARGE, "Too many source blocks in recovery set: "},
    };
    for (const auto &[known, line] : kLines)
      if (status == known) fail(kPar2TooLittleData, line, tandem_last_error_message());
    check(status);
    report_.emplace(report);
  }

  void print_packet_files() const {
    for (const tandem_par2_packet_file &file : report_->packet_files) {
      output_.line(-1, "Loading \"{}\".", shown(file.path));
      output_.line(0, "Loaded {} packets including {} recovery blocks", file.packet_count, file.recovery_slice_count);
    }
    const tandem_par2_summary &summary = report_->summary;
    std::uint64_t bytes = 0, recoverable = 0;
    for (const tandem_par2_file &file : report_->files) {
      bytes += file.bytes;
      recoverable += file.recoverable != 0;
    }
    output_.lines(0,
                  "\nThere are {} recoverable files and {} other files.\nThe block size used was {} bytes.\n"
                  "There are a total of {} data blocks.\nThe total size of the data files is {} bytes.\n",
                  recoverable, summary.file_count - recoverable, summary.slice_bytes, summary.slice_count, bytes);
  }

  void print_target(const tandem_par2_file &file) const {
    std::error_code error;
    if (file.state == TANDEM_PAR2_COMPLETE) {
      output_.line(-1, "Target: \"{}\" - found.", file.name);
    } else if (file.state == TANDEM_PAR2_UNREADABLE) {
      output_.line(-1, "Target: \"{}\" - cannot be read: {}.", file.name, std::strerror(file.error_number));
    } else if (file.state == TANDEM_PAR2_DAMAGED || fs::exists(base_ / file.name, error)) {
      output_.line(-1, "Target: \"{}\" - damaged. Found {} of {} data blocks.", file.name, file.found_slice_count,
                   file.slice_count);
    } else {
      output_.line(-1, "Target: \"{}\" - missing.", file.name);
    }
  }

  void print_searched(const tandem_par2_searched_file &file) const {
    const std::string path = shown(file.path);
    if (file.error_number != 0) {
      output_.line(-1, "File: \"{}\" - cannot be read: {}.", path, std::strerror(file.error_number));
    } else if (file.found_slice_count == 0 && file.repeated_slice_count != 0) {
      output_.line(-1, "File: \"{}\" - found {} duplicate data blocks.", path, file.repeated_slice_count);
    } else if (file.found_slice_count == 0) {
      output_.line(-1, "File: \"{}\" - no data found.", path);
    } else if (file.name != nullptr) {
      output_.line(-1, "File: \"{}\" - found {} of {} data blocks from \"{}\".", path, file.found_slice_count,
                   file.slice_count, file.name);
    } else {
      output_.line(-1, "File: \"{}\" - found {} data blocks from several target files.", path, file.found_slice_count);
    }
  }

  void print_files() const {
    output_.lines(0, "\nVerifying source files:\n\n");
    for (const tandem_par2_file &file : report_->files) print_target(file);
    if (report_->summary.repair_needed != 0) {
      output_.lines(0, "\nScanning extra files:\n\n");
      for (const tandem_par2_file &file : report_->files)
        if (file.state == TANDEM_PAR2_RENAMED)
          output_.line(-1, "File: \"{}\" - is a match for \"{}\".", shown(file.found_as), file.name);
      for (const tandem_par2_searched_file &file : report_->searched_files) print_searched(file);
    }
    for (const char *path : report_->temporaries)
      output_.line(-1, "Left by a process that ended early: \"{}\"", shown(path));
    output_.line(-1, "");
  }

  void print_need() const {
    const tandem_par2_summary &summary = report_->summary;
    const auto count = [&](std::uint32_t files, const char *what) {
      if (files != 0) output_.line(0, "{} file(s) {}", files, what);
    };
    if (summary.unreadable_count != 0) output_.line(-1, "{} file(s) cannot be read.", summary.unreadable_count);
    if (summary.complete_count + summary.unreadable_count == summary.file_count) return;
    output_.line(-1, "Repair is required.");
    count(summary.renamed_count, "have the wrong name.");
    count(summary.missing_count, "are missing.");
    count(summary.damaged_count, "exist but are damaged.");
    count(summary.complete_count, "are ok.");
    const std::uint32_t lost = summary.slice_count - summary.found_slice_count, spare = summary.recovery_slice_count;
    output_.line(0, "You have {} out of {} data blocks available.", summary.found_slice_count, summary.slice_count);
    if (spare != 0) output_.line(0, "You have {} recovery blocks available.", spare);
    if (summary.repair_possible == 0) {
      output_.line(-1, "Repair is not possible.");
      if (lost > spare) output_.line(-1, "You need {} more recovery blocks to be able to repair.", lost - spare);
      return;
    }
    output_.line(-1, "Repair is possible.");
    if (spare > lost) output_.line(0, "You have an excess of {} recovery blocks.", spare - lost);
    output_.line(0, "{} recovery blocks will be used to repair.", lost);
  }

  tandem_status call_repair() {
    auto options = sized<tandem_par2_repair_options>();
    options.memory_bytes = words_.memory_bytes();
    options.thread_count = words_.threads();
    options.rename_only = words_.has('O');
    options.keep_replaced = !words_.has('p');
    const ContextOwner context = make_context(words_.context());
    return output_.run("Repairing", options,
                       [&] { return tandem_par2_repair(context.get(), report_->get(), &options); });
  }

  int repair_files() {
    refuse_dangling_links();
    output_.line(0, "");
    const bool is_possible = report_->summary.repair_possible != 0;  // else "Repair is not possible." is printed
    const tandem_status status = call_repair();
    const bool is_in_part = status == TANDEM_ERROR_NOT_RECOVERABLE && !is_possible;
    std::optional<Failure> failure;
    try {
      check(status);
    } catch (const Failure &caught) {
      failure = caught;
    }
    report_->read();
    const tandem_par2_summary &summary = report_->summary;
    if (!failure || is_in_part || summary.repaired_count != 0) print_repaired();
    if (is_in_part) return status_of_need();
    if (failure) {
      if (status != TANDEM_ERROR_CANCELLED) output_.line(-1, "Repair Failed.");
      throw Failure(*failure);
    }
    if (summary.unreadable_count != 0) {
      output_.line(-1, "Repair Failed: {} file(s) cannot be read, and stay as they are.", summary.unreadable_count);
      return kPar2FileError;
    }
    if (summary.repair_needed != 0) {
      output_.line(-1, "{}", words_.has('O') ? "Files were renamed, repair is still required." : "Repair Failed.");
      return words_.has('O') ? status_of_need() : kPar2RepairFailed;
    }
    output_.line(-1, "Repair complete.");
    purge();
    return kPar2Done;
  }

  void print_repaired() const {
    output_.lines(0, "\nVerifying repaired files:\n\n");
    for (const tandem_par2_file &file : report_->files)
      if (file.repaired != 0) print_target(file);
    output_.line(-1, "");
  }

  // It may point out of the base folder, and what it was for is unknown.
  void refuse_dangling_links() const {
    for (const tandem_par2_file &file : report_->files) {
      std::error_code error;
      const fs::path path = base_ / file.name;
      if (file.state == TANDEM_PAR2_UNREADABLE) continue;
      if (fs::is_symlink(fs::symlink_status(path, error)) && !fs::exists(path, error)) {
        output_.line(-1, "Repair Failed.");
        fail(kPar2FileError, "\"", path.string(), "\" is a symbolic link to nothing");
      }
    }
  }

  // The packet files of the set that have its name or were named by the user. Those of other sets stay, also if their
  // names begin with the same words.
  void purge() const {
    if (!words_.has('p')) return;
    output_.lines(-1, "\nPurge par files.\n");
    for (const tandem_par2_packet_file &file : report_->packet_files) {
      const std::string path = file.path;
      const auto is_it = [&](const fs::path &other) {  // also by another name
        std::error_code error;
        return fs::equivalent(other, path, error);
      };
      const bool has_name = fs::path(base_of_set(path)) == fs::path(base_of_set(words_.set()));
      const bool is_of_set = file.packet_count != 0 || (has_name && file.damaged_bytes == file.bytes);
      if (!is_of_set || !(has_name || is_it(words_.set()) || std::ranges::any_of(words_.names(), is_it))) continue;
      // A file that its name does not show to be of packets alone, or one that the set protects.
      if (base_of_set(path) == path ||
          std::ranges::any_of(report_->files, [&](const auto &each) { return is_it(base_ / each.name); }))
        continue;
      output_.line(-1, "Remove \"{}\".", shown(path));
      std::error_code error;
      if (!fs::remove(path, error)) fail(kPar2FileError, "Cannot remove \"", path, "\": ", error.message());
    }
  }

  // Relative to the base folder where possible, as names in the set are.
  std::string shown(const fs::path &path) const {
    std::error_code error;
    const fs::path base = fs::canonical(base_, error), folder = fs::canonical(folder_or_dot(path.parent_path()), error);
    const std::string relative = (folder / path.filename()).lexically_relative(base);
    return relative.empty() || relative.starts_with("../") ? path.string() : relative;
  }

  const Par2Words &words_;
  const Par2Output &output_;
  const fs::path base_;
  std::optional<Par2Report> report_;
};

// ---- the program

int run_par2(const std::string &program, std::vector<std::string> words) {
  std::string command = program.substr(std::strlen("par2"));
  if (!words.empty() && (words[0] == "-h" || words[0] == "--help")) {
    fmt::print("{}", kPar2Help);
    return kPar2Done;
  }
  if (!words.empty() && (words[0] == "-V" || words[0] == "-VV" || words[0] == "--version")) {
    fmt::print("Tandem {}, with the commands and messages of par2cmdline-turbo\n{}", tandem_version_string(),
               words[0] == "-VV" ? "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0\n" : "");
    return kPar2Done;
  }
  if (command.empty() && !words.empty()) {
    command = words[0];
    words.erase(words.begin());
  }
  if (words.empty()) refuse("Not enough command line arguments; par2 -h prints help.");
  const bool creates = command == "c" || command == "create", repairs = command == "r" || command == "repair";
  if (!creates && !repairs && command != "v" && command != "verify") refuse("Invalid operation specified: " + command);
  const Par2Words parsed(creates   ? Par2Command::create
                         : repairs ? Par2Command::repair
                                   : Par2Command::verify,
                         std::move(words));
  const Par2Output output(parsed.noise());
  return creates ? Par2Creation(parsed, output).run() : Par2Check(parsed, output).run();
}

}  // namespace

std::optional<int> run_as_par2(int argc, char **argv) {
  const std::string program = argc > 0 ? fs::path(argv[0]).filename().string() : "";
  if (program != "par2" && program != "par2create" && program != "par2verify" && program != "par2repair") return {};
  prepare_process("par2", "par2");
  int status = kPar2LogicError;
  std::string message;
  try {
    status = run_par2(program, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Failure &failure) {
    const Failure ours = as_par2(failure);
    status = ours.exit_status;
    message = ours.message;
  } catch (const std::bad_alloc &) {
    status = kPar2MemoryError;
    message = "out of memory";
  } catch (const std::exception &error) {
    message = error.what();
  }
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!message.empty()) write_standard_error(on_one_line(message) + "\n");
  return is_written || status != kPar2Done ? status : kPar2FileError;
}

}  // namespace tandem::cli
