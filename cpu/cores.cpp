// SPDX-License-Identifier: Apache-2.0
#include "cpu/cores.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/affinity.hpp"
#include "base/os.hpp"
#include "base/text.hpp"
#include "cpu/executors/executor.hpp"
#include "cpu/factory.hpp"

namespace tandem::cpu {

namespace {

constexpr std::uint64_t kNoLimit = UINT64_MAX;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;  // a mountinfo of a busy host has tens of KiB

// At most kMaxFileBytes; empty if there is no such file.
std::string read_file(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxFileBytes && (file.read(buffer, sizeof buffer), file.gcount() > 0)) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool contains(std::string_view comma_list, std::string_view word) {
  const auto words = split(comma_list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<std::uint64_t> number(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return base::number_in<std::uint64_t>(text);
}

std::uint64_t cores_of(std::optional<std::uint64_t> quota, std::optional<std::uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return kNoLimit;
  return *quota / *period + (*quota % *period != 0 ? 1 : 0);
}

// cgroup v2, "Control Group v2", cpu.max: "$MAX $PERIOD", $MAX may be "max". The period defaults to 100000
// microseconds.
std::uint64_t limit_v2(const std::string &folder) {
  const std::string text = read_file(folder + "/cpu.max");
  const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  const auto words = split(line, ' ');
  if (words.size() > 2) return kNoLimit;
  return cores_of(number(words[0]), words.size() == 2 ? number(words[1]) : 100000);
}

// cgroup v1, "CFS Bandwidth Control": a quota of -1 is none.
std::uint64_t limit_v1(const std::string &folder) {
  return cores_of(number(read_file(folder + "/cpu.cfs_quota_us")), number(read_file(folder + "/cpu.cfs_period_us")));
}

struct Mount {
  std::string root;   // the cgroup that is mounted
  std::string point;  // where
};

// Space, tab, newline and backslash stand as \ooo in mountinfo (proc(5)).
std::string unescape(std::string_view text) {
  std::string plain;
  const auto octal = [](char digit) { return digit >= '0' && digit <= '7'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// proc(5), /proc/pid/mountinfo: id, parent, major:minor, root, mount point, options, tags ..., "-", type, source,
// options.
std::optional<Mount> find_mount(std::string_view mountinfo, bool v2) {
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
    if (v2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && contains(dash[3], "cpu")) {
      return Mount{unescape(fields[3]), unescape(fields[4])};
    }
  }
  return std::nullopt;
}

// The path of a cgroup below the mount point: "" or "/a/b". For a cgroup outside the mount (another namespace shows
// "/../x") it is the visible part: the mount point itself.
std::string path_below(const Mount &mount, std::string_view cgroup) {
  const std::string_view root = mount.root == "/" ? std::string_view() : std::string_view(mount.root);
  if (cgroup.substr(0, root.size()) != root) return {};
  cgroup.remove_prefix(root.size());
  while (!cgroup.empty() && cgroup.back() == '/') cgroup.remove_suffix(1);
  if (cgroup.size() >= PATH_MAX || (!cgroup.empty() && cgroup.front() != '/')) return {};
  const auto parts = split(cgroup, '/');
  if (std::find(parts.begin(), parts.end(), "..") != parts.end()) return {};
  return std::string(cgroup);
}

std::uint64_t smallest_limit(const std::string &mount_folder, std::string path, bool v2) {
  std::uint64_t limit = kNoLimit;
  for (;;) {
    limit = std::min(limit, v2 ? limit_v2(mount_folder + path) : limit_v1(mount_folder + path));
    if (path.empty()) return limit;
    path.resize(path.rfind('/'));
  }
}

// The value in a line "name : value" of /proc/cpuinfo; null if the line has another name.
std::optional<std::string> value_of(std::string_view line, std::string_view name) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos || !line.starts_with(name)) return std::nullopt;
  return std::string(line.substr(colon + 2));
}

// "CPU implementer" and "CPU part" of /proc/cpuinfo are fields of MIDR_EL1.
struct ArmPart {
  std::string_view implementer, part, name;
};
constexpr ArmPart kArmParts[] = {
    {"0x41", "0xd03", "Cortex-A53"},  {"0x41", "0xd04", "Cortex-A35"},  {"0x41", "0xd05", "Cortex-A55"},
    {"0x41", "0xd07", "Cortex-A57"},  {"0x41", "0xd08", "Cortex-A72"},  {"0x41", "0xd09", "Cortex-A73"},
    {"0x41", "0xd0a", "Cortex-A75"},  {"0x41", "0xd0b", "Cortex-A76"},  {"0x41", "0xd0c", "Neoverse N1"},
    {"0x41", "0xd0d", "Cortex-A77"},  {"0x41", "0xd40", "Neoverse V1"}, {"0x41", "0xd41", "Cortex-A78"},
    {"0x41", "0xd49", "Neoverse N2"}, {"0x41", "0xd4f", "Neoverse V2"}, {"0x41", "0xd83", "Neoverse V3AE"},
    {"0x41", "0xd84", "Neoverse V3"}, {"0x41", "0xd8e", "Neoverse N3"}, {"0x46", "0x001", "Fujitsu A64FX"},
    {"0x48", "0xd01", "Kunpeng 920"}, {"0x43", "0x0af", "ThunderX2"},   {"0xc0", "0xac3", "Ampere-1"},
    {"0xc0", "0xac4", "Ampere-1A"},   {"0x61", "0x022", "Apple M1"},    {"0x61", "0x023", "Apple M1"},
};

}  // namespace

std::uint64_t cgroup_core_limit(const std::string &root) {
  const std::string cgroups = read_file(root + "/proc/self/cgroup");
  const std::string mountinfo = read_file(root + "/proc/self/mountinfo");
  std::uint64_t limit = kNoLimit;
  for (const std::string_view line : split(cgroups, '\n')) {  // cgroups(7): hierarchy-ID:controllers:path
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !contains(controllers, "cpu")) continue;
    const auto mount = find_mount(mountinfo, v2);
    if (!mount) continue;
    limit = std::min(limit, smallest_limit(root + mount->point, path_below(*mount, line.substr(second + 1)), v2));
  }
  return limit;
}

unsigned allowed_core_count() {
  std::uint64_t count = base::affinity_cores().size();
  if (count == 0) count = static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return static_cast<unsigned>(std::min(count, cgroup_core_limit({})));
}

std::uint64_t runnable_thread_count(const char *loadavg_file) noexcept {
  const int file = open(loadavg_file, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char buffer[128];
  const ssize_t bytes = read(file, buffer, sizeof buffer);
  close(file);
  std::string_view text(buffer, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  for (unsigned field = 0; field < 3; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return 0;
    text.remove_prefix(space + 1);
  }
  return number(text.substr(0, text.find('/'))).value_or(0);
}

bool machine_has_room(unsigned thread_count) noexcept {
  static const long core_count = sysconf(_SC_NPROCESSORS_ONLN);
  const base::os::AffinityMask mask;
  return thread_count <= mask.count() &&
         runnable_thread_count("/proc/loadavg") <= static_cast<std::uint64_t>(std::max(1L, core_count));
}

std::string cpu_model(const std::string &root) {
  std::ifstream cpuinfo(root + "/proc/cpuinfo");
  std::string implementer;
  std::vector<std::string> models;
  for (std::string line; std::getline(cpuinfo, line);) {
    if (auto model = value_of(line, "model name")) return *model;  // the same for all cores
    if (auto found = value_of(line, "CPU implementer")) implementer = *found;
    const auto part = value_of(line, "CPU part");
    if (!part) continue;
    const auto known = std::find_if(std::begin(kArmParts), std::end(kArmParts), [&](const ArmPart &each) {
      return each.implementer == implementer && each.part == *part;
    });
    std::string model =
        known != std::end(kArmParts) ? std::string(known->name) : "Arm implementer " + implementer + " part " + *part;
    if (std::find(models.begin(), models.end(), model) == models.end()) models.push_back(std::move(model));
  }
  return models.empty() ? "unknown CPU" : base::join(models, ", ");
}

std::string cpu_vendor(const std::string &root) {
  std::ifstream cpuinfo(root + "/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    for (const std::string_view name : {"vendor_id", "CPU implementer"})
      if (auto vendor = value_of(line, name)) return *vendor;
  return {};
}

}  // namespace tandem::cpu
