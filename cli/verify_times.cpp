// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_times.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "base/io_error.hpp"
#include "base/pending_file.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kName = "verified", *kTemporary = ".verified.tandem-tmp";

fs::path state_folder() {
  const auto absolute = [](const char *variable) {  // the XDG specification: ignore a path that is not absolute
    const char *const value = std::getenv(variable);
    return fs::path(value != nullptr && *value == '/' ? value : "");
  };
  // systemd.exec: a list, separated by colons.
  if (const std::string given = absolute("STATE_DIRECTORY"); !given.empty()) return given.substr(0, given.find(':'));
  if (const fs::path state = absolute("XDG_STATE_HOME"); !state.empty()) return state / "tandem";
  if (const fs::path home = absolute("HOME"); !home.empty()) return home / ".local/state/tandem";
  fail(kExitWrongUsage, "--oldest keeps times in the state folder: set HOME, XDG_STATE_HOME or STATE_DIRECTORY");
}

}  // namespace

VerifyTimes::VerifyTimes() {
  const std::string path = state_folder();
  std::vector<std::string> made;
  base::make_folder(path, made);
  folder_ = std::make_shared<base::Folder>(path);
  keep("");
}

void VerifyTimes::keep(const std::string &key) {
  const base::FoldersLock lock({folder_}, {});
  std::ifstream file(folder_->path_of(kName));
  times_.clear();
  std::int64_t time = 0;
  for (std::string id; file >> id >> time;) times_[id] = time;
  if (file.is_open() ? file.bad() : folder_->has(kName)) base::fail_io("read", folder_->path_of(kName), errno);
  if (!key.empty()) times_[key] = std::time(nullptr);
  std::string rows;
  for (const auto &[id, when] : times_) rows += fmt::format("{}\t{}\n", id, when);
  folder_->remove(kTemporary);  // of a process that was killed
  base::PendingFile pending(folder_, kTemporary, UINT32_MAX);
  if (!base::write_at(pending.descriptor(), reinterpret_cast<const std::byte *>(rows.data()), rows.size(), 0))
    base::fail_io("write", pending.path(), errno);
  pending.finish(false);
  pending.rename(kName, true, false);
}

std::set<std::string> VerifyTimes::oldest(const std::vector<Set> &sets, double part) const {
  std::vector<std::tuple<std::int64_t, std::string, std::uint64_t>> order;
  double left = 0;  // bytes
  const std::int64_t now = std::time(nullptr);
  for (const auto &[key, bytes] : sets) {
    const auto time = times_.find(key);
    const bool is_known = time != times_.end() && time->second <= now;  // a clock may have been wrong
    order.emplace_back(is_known ? time->second : 0, key, bytes);
    left += part * static_cast<double>(bytes);
  }
  std::ranges::sort(order);
  std::set<std::string> chosen;
  for (const auto &[time, key, bytes] : order) {
    if (left <= 0 && !chosen.empty()) break;
    chosen.insert(key);
    left -= static_cast<double>(bytes);
  }
  return chosen;
}

void VerifyTimes::set_now(const std::string &key) try { keep(key); } catch (const std::exception &error) {
  complain("note: the time of this check cannot be kept: ", error.what());
}

void add_part_flags(CLI::App &command, std::uint64_t &rate_bytes_per_second, double *oldest_part) {
  command
      .add_option("--rate", rate_bytes_per_second,
                  "Read at most this many bytes per second, such as 100M; default: no limit")
      ->transform(size_value());
  if (oldest_part == nullptr) return;
  command
      .add_option("--oldest", *oldest_part,
                  "Check only the sets that this option has not checked for the longest time, up to this part of all "
                  "bytes, such as 5%. The times are kept in ~/.local/state/tandem")
      ->transform(part_value());
}

}  // namespace tandem::cli
