// SPDX-License-Identifier: Apache-2.0
#include "cli/locate.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/descriptor.hpp"
#include "cli/option_table.hpp"
#include "tandem/diagnose.h"
#include "tandem/tools.h"

namespace tandem::cli {
namespace {

// The memory for all shards together.
constexpr std::uint64_t kMostWindowBytes = 256 << 20, kPageBytes = 4096;
constexpr std::size_t kRangesOfAWindow = 4096, kMostRanges = 100'000, kShownRanges = 10;

class ShardFile {
 public:
  ShardFile(const std::string &path, bool is_written)
      : path_(path), file_(open(path.c_str(), (is_written ? O_RDWR : O_RDONLY) | O_CLOEXEC)) {
    struct stat status = {};
    if (!file_ || fstat(file_.get(), &status) != 0) fail_to("open");
    if (!S_ISREG(status.st_mode)) fail(kExitInputOutput, printable(path) + " is not a regular file");
    bytes_ = static_cast<std::uint64_t>(status.st_size);
  }

  std::uint64_t bytes() const { return bytes_; }

  void read(std::byte *to, std::uint64_t bytes, std::uint64_t offset) const {
    const std::int64_t got = base::read_at(file_.get(), to, bytes, offset);
    if (got < 0) fail_to("read");
    if (static_cast<std::uint64_t>(got) != bytes) fail(kExitInputOutput, printable(path_) + " has become shorter");
  }
  void write(const std::byte *from, std::uint64_t bytes, std::uint64_t offset) const {
    if (!base::write_at(file_.get(), from, bytes, offset)) fail_to("write to");
  }
  void sync() const {
    if (fsync(file_.get()) != 0) fail_to("write to the disk");
  }

 private:
  [[noreturn]] void fail_to(const char *action) const {
    fail(kExitInputOutput, "cannot ", action, " ", printable(path_), ": ", std::strerror(errno));
  }

  std::string path_;
  base::Descriptor file_;
  std::uint64_t bytes_ = 0;
};

// The damage in all windows.
struct Damage {
  std::vector<std::uint64_t> bytes;  // of each shard
  std::uint64_t beyond_bytes = 0;
  std::map<std::uint32_t, std::vector<tandem_shard_range>> ranges;  // by shard
  std::size_t range_count = 0;
  bool are_ranges_left_out = false;
  std::uint32_t most_damaged_shards = 0;

  void add(const tandem_shard_range &range, std::uint64_t offset) {
    std::vector<tandem_shard_range> &list = ranges[range.shard];
    if (!list.empty() && list.back().end_bytes == offset + range.begin_bytes) {  // from the previous window
      list.back().end_bytes = offset + range.end_bytes;
      list.back().byte_count += range.byte_count;
    } else if (range_count == kMostRanges) {
      are_ranges_left_out = true;
    } else {
      list.push_back({range.shard, 0, offset + range.begin_bytes, offset + range.end_bytes, range.byte_count});
      ++range_count;
    }
  }
};

class Stripe {
 public:
  Stripe(const LocateFlags &flags, const std::vector<std::string> &paths, const ContextFlags &context_flags)
      : context_(make_context(context_flags)), present_(paths.size()), files_(paths.size()) {
    auto options = sized<tandem_codec_options>();
    options.k = flags.k;
    options.m = flags.m;
    options.local_groups = flags.groups;
    if (!flags.matrix.empty()) check(tandem_matrix_from_name(flags.matrix.c_str(), &options.matrix));
    tandem_codec *codec = nullptr;
    check(tandem_codec_create(&options, &codec));
    codec_.reset(codec);

    std::size_t first = paths.size();
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (paths[i] == "-") continue;
      present_[i] = 1;
      files_[i] = std::make_unique<ShardFile>(paths[i], flags.repair);
      if (first == paths.size()) first = i;
      if (files_[i]->bytes() != files_[first]->bytes())
        fail(kExitWrongUsage, printable(paths[i]), " has ", files_[i]->bytes(), " bytes, but ", printable(paths[first]),
             " has ", files_[first]->bytes(), "; the shards of a stripe are of one length");
    }
    if (first == paths.size()) fail(kExitWrongUsage, "no shard is given but lost ones (-)");
    shard_bytes_ = files_[first]->bytes();
    if (shard_bytes_ == 0) fail(kExitWrongUsage, "the shards are empty");
    window_bytes_ = std::max(kMostWindowBytes / paths.size() / kPageBytes, std::uint64_t{1}) * kPageBytes;
    window_bytes_ = std::min(window_bytes_, shard_bytes_);
    buffers_.resize(paths.size());
    check(tandem_shards_allocate(paths.size(), window_bytes_, 0, buffers_.data()));
  }
  ~Stripe() {
    if (!buffers_.empty()) tandem_shards_free(buffers_[0]);
  }
  Stripe(const Stripe &) = delete;
  Stripe &operator=(const Stripe &) = delete;

  std::uint64_t shard_bytes() const { return shard_bytes_; }
  std::uint64_t read_bytes() const { return read_bytes_; }

  Damage look(Progress *progress) {
    Damage damage;
    damage.bytes.resize(files_.size());
    for (std::uint64_t offset = 0; offset < shard_bytes_; offset += window_bytes_) {
      go_on(progress, offset);
      std::vector<std::uint64_t> bytes(files_.size());
      std::vector<tandem_shard_range> ranges(kRangesOfAWindow);
      const tandem_locate_result result = locate(offset, false, bytes.data(), &ranges);
      damage.most_damaged_shards = result.most_damaged_shards;
      if (result.consistent != 0) continue;
      damaged_windows_.push_back(offset);
      damage.beyond_bytes += result.beyond_byte_count;
      for (std::size_t i = 0; i < bytes.size(); ++i) damage.bytes[i] += bytes[i];
      for (const tandem_shard_range &range : ranges) damage.add(range, offset);
      if (ranges.size() < result.range_count) damage.are_ranges_left_out = true;
    }
    return damage;
  }

  // Call this after a check that could name all damage.
  void repair(Progress *progress) {
    for (const std::uint64_t offset : damaged_windows_) {
      go_on(progress, offset);
      std::vector<std::uint64_t> bytes(files_.size());
      if (locate(offset, true, bytes.data(), nullptr).repaired == 0)
        fail(kExitInputOutput, "the shard files have changed while they were repaired");
      for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != 0) files_[i]->write(static_cast<const std::byte *>(buffers_[i]), window_at(offset), offset);
    }
    for (const auto &file : files_)
      if (file != nullptr) file->sync();
  }

 private:
  std::uint64_t window_at(std::uint64_t offset) const { return std::min(window_bytes_, shard_bytes_ - offset); }

  void go_on(Progress *progress, std::uint64_t offset) const {
    if (Progress::callback(progress, offset, shard_bytes_) != 0) check(TANDEM_ERROR_CANCELLED);
  }

  // ranges: null, or gets the ranges as far as there is room.
  tandem_locate_result locate(std::uint64_t offset, bool repair, std::uint64_t *bytes_out,
                              std::vector<tandem_shard_range> *ranges) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (files_[i] == nullptr) continue;
      files_[i]->read(static_cast<std::byte *>(buffers_[i]), window_at(offset), offset);
      read_bytes_ += window_at(offset);
    }
    auto options = sized<tandem_locate_options>();
    options.present = present_.data();
    options.repair = repair;
    options.damaged_bytes_out = bytes_out;
    if (ranges != nullptr) {
      options.ranges = ranges->data();
      options.range_capacity = ranges->size();
    }
    auto result = sized<tandem_locate_result>();
    check(tandem_locate(context_.get(), codec_.get(), buffers_.data(), window_at(offset), &options, &result));
    if (ranges != nullptr) ranges->resize(std::min<std::size_t>(ranges->size(), result.range_count));
    return result;
  }

  ContextOwner context_;
  std::unique_ptr<tandem_codec, Destroy> codec_;
  std::vector<std::uint8_t> present_;
  std::vector<std::unique_ptr<ShardFile>> files_;  // null: lost
  std::vector<void *> buffers_;
  std::uint64_t shard_bytes_ = 0, window_bytes_ = 0, read_bytes_ = 0;
  std::vector<std::uint64_t> damaged_windows_;  // offsets
};

// A path, cut at the last number in it.
struct Numbered {
  std::string before, digits, after;
};

Numbered cut_at_number(const std::string &path) {
  constexpr const char *kDigits = "0123456789";
  const std::size_t end = path.find_last_of(kDigits) + 1;
  if (end == 0) return {path, "", ""};
  const std::size_t first = path.find_last_not_of(kDigits, end - 1) + 1;
  return {path.substr(0, first), path.substr(first, end - first), path.substr(end)};
}

bool is_less(const Numbered &a, const Numbered &b) {
  return a.digits.size() != b.digits.size() ? a.digits.size() < b.digits.size() : a.digits < b.digits;
}

// A shell lists shard.* as shard.0, shard.1, shard.10, shard.11, ..., shard.2. The user means the order of the
// numbers.
std::vector<std::string> in_order_of_numbers(const std::vector<std::string> &paths) {
  std::vector<Numbered> named;
  for (const std::string &path : paths)
    if (path != "-") named.push_back(cut_at_number(path));
  const bool is_listed_by_shell =
      std::ranges::all_of(
          named,
          [&](const Numbered &each) { return each.before == named[0].before && each.after == named[0].after; }) &&
      std::ranges::is_sorted(named, {}, &Numbered::digits);
  const auto wrong = std::ranges::is_sorted_until(named, is_less);
  if (!is_listed_by_shell || wrong == named.end()) return paths;
  if (named.size() != paths.size())
    fail(kExitWrongUsage, "shard ", wrong->digits, " stands behind shard ", std::prev(wrong)->digits,
         ", as a shell lists them, so the place of a lost one (-) is not clear: name the shards in the order of their "
         "numbers");
  std::ranges::sort(named, is_less);
  std::vector<std::string> ordered;
  for (const Numbered &each : named) ordered.push_back(each.before + each.digits + each.after);
  return ordered;
}

void print_ranges(const std::vector<tandem_shard_range> &ranges) {
  for (std::size_t i = 0; i < std::min(ranges.size(), kShownRanges); ++i)
    fmt::print("  bytes {} to {} ({} damaged)\n", ranges[i].begin_bytes, ranges[i].end_bytes - 1, ranges[i].byte_count);
  if (ranges.size() > kShownRanges) fmt::print("  and {} more\n", plural(ranges.size() - kShownRanges, "range"));
}

Json to_json(const std::vector<tandem_shard_range> &ranges) {
  auto list = Json::array();
  for (const tandem_shard_range &range : ranges)
    list.push_back(
        {{"begin_bytes", range.begin_bytes}, {"end_bytes", range.end_bytes}, {"byte_count", range.byte_count}});
  return list;
}

}  // namespace

void add_locate_flags(CLI::App &command, LocateFlags &flags) {
  CLI::Option *locate = command.add_flag("--locate", flags.is_on,
                                         "PATH... are the k + m raw shards of one stripe in order, - for a lost one: "
                                         "name the damaged ones by parity alone");
  CLI::Option *k = command.add_option("-k,--data", flags.k, "Data shards, with --locate");
  CLI::Option *m = command.add_option("-m,--parity", flags.m, "Parity shards, with --locate");
  locate->needs(k, m);
  k->needs(locate);
  m->needs(locate);
  command.add_option("--matrix", flags.matrix, "Generator matrix (docs/matrices.md), with --locate")
      ->check(matrix_value(MatrixUse::raw_shards))
      ->default_str("isal-cauchy")
      ->type_name("NAME")
      ->needs(locate);
  command.add_option("--groups", flags.groups, "Local groups of such a matrix, with --locate")->needs(locate);
  command
      .add_flag("--repair", flags.repair,
                "Repair the damaged bytes in place, with --locate; writes nothing unless all damage is located")
      ->needs(locate);
  for (const char *name : {"--locate", "--data", "--parity", "--matrix", "--groups", "--repair"})
    command.get_option(name)->group("Raw shards");
}

int locate(const LocateFlags &flags, const std::vector<std::string> &given, const ContextFlags &context_flags,
           const OutputFlags &output) {
  if (given.size() != std::uint64_t{flags.k} + flags.m)
    fail(kExitWrongUsage, plural(given.size(), "path"), " given, but k + m = ", std::uint64_t{flags.k} + flags.m,
         "; - stands for a lost shard");
  const std::vector<std::string> paths = in_order_of_numbers(given);
  allow_open_files();
  const auto begin = std::chrono::steady_clock::now();
  Stripe stripe(flags, paths, context_flags);
  Damage damage;
  std::uint64_t damaged_bytes = 0;
  bool is_repaired = false;
  {
    Progress progress("verify", output);
    damage = stripe.look(&progress);
    for (const std::uint64_t bytes : damage.bytes) damaged_bytes += bytes;
    if (flags.repair && damage.beyond_bytes == 0 && damaged_bytes != 0) {
      stripe.repair(&progress);
      is_repaired = true;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const bool is_clean = damaged_bytes == 0 && damage.beyond_bytes == 0;
  if (output.json) {
    Json object = {{"command", "verify"},
                   {"k", flags.k},
                   {"m", flags.m},
                   {"shard_bytes", stripe.shard_bytes()},
                   {"consistent", is_clean},
                   {"most_damaged_shards", damage.most_damaged_shards},
                   {"damaged", Json::array()},
                   {"beyond_bytes", damage.beyond_bytes},
                   {"beyond", to_json(damage.ranges[TANDEM_SHARD_NONE])},
                   {"ranges_left_out", damage.are_ranges_left_out},
                   {"repaired", is_repaired},
                   {"read_bytes", stripe.read_bytes()},
                   {"seconds", seconds}};
    for (std::uint32_t i = 0; i < damage.bytes.size(); ++i)
      if (damage.bytes[i] != 0)
        object["damaged"].push_back(
            {{"shard", i}, {"path", paths[i]}, {"byte_count", damage.bytes[i]}, {"ranges", to_json(damage.ranges[i])}});
    print_json(object);
  } else if (!output.quiet) {
    for (std::uint32_t i = 0; i < damage.bytes.size(); ++i) {
      if (damage.bytes[i] == 0) continue;
      fmt::print("{}: shard {}: {}{}\n", printable(paths[i]), i, plural(damage.bytes[i], "damaged byte"),
                 is_repaired ? ", repaired" : "");
      print_ranges(damage.ranges[i]);
    }
    if (damage.beyond_bytes != 0) {
      fmt::print("{} {} more damaged shards than can be located (at most {})\n", plural(damage.beyond_bytes, "offset"),
                 damage.beyond_bytes == 1 ? "has" : "have", damage.most_damaged_shards);
      print_ranges(damage.ranges[TANDEM_SHARD_NONE]);
      if (flags.repair) fmt::print("nothing was written\n");
    }
    if (damage.are_ranges_left_out) fmt::print("there are more ranges than these\n");
    if (is_clean) fmt::print("intact\n");
    fmt::print("{} read in {:.2f} s, {}\n", size(stripe.read_bytes()), seconds, rate(stripe.read_bytes(), seconds));
  }
  if (damage.beyond_bytes != 0) return kExitNotRecoverable;
  return is_clean || is_repaired ? kExitDone : kExitDamageFound;
}

}  // namespace tandem::cli
