// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_times.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

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

VerifyTimes::VerifyTimes() : path_(state_folder() / "verified") {
  std::error_code none;
  fs::create_directories(fs::path(path_).parent_path(), none);
  if (!read() || !write())
    fail(kExitInputOutput, path_ + " cannot be read and written: --oldest keeps its times there");
}

bool VerifyTimes::read() {
  std::error_code error;
  if (fs::symlink_status(path_, error).type() == fs::file_type::not_found) return true;
  std::ifstream file(path_);
  if (!file) return false;
  times_.clear();
  for (std::string line; std::getline(file, line);) {
    std::istringstream row(line);
    std::string id;
    std::int64_t time = 0;
    if (row >> id >> time) times_[id] = time;
  }
  return !file.bad();
}

bool VerifyTimes::write() const {
  const std::string temporary = fmt::format("{}.{}", path_, getpid());
  std::ofstream file(temporary, std::ios::trunc);
  for (const auto &[id, time] : times_) file << id << '\t' << time << '\n';
  file.close();
  std::error_code error;
  if (file) fs::rename(temporary, path_, error);
  if (file && !error) return true;
  fs::remove(temporary, error);
  return false;
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

bool VerifyTimes::set_now(const std::string &key) {
  if (!read()) return false;
  times_[key] = std::time(nullptr);
  return write();
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
