// SPDX-License-Identifier: Apache-2.0
#include "par2/tree.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string_view>

#include "base/bytes.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {

constexpr std::size_t kMostOpen = 16, kRandomBytes = 8, kMostOfName = 200;
constexpr std::string_view kEnding = ".tmp";

std::string temporary_name(const std::string &name) {
  return text(".", name.substr(0, kMostOfName), ".", base::random_hexadecimal(kRandomBytes), kEnding);
}

std::string name_of_temporary(const std::string &temporary) {
  constexpr std::size_t kAfter = 1 + 2 * kRandomBytes + kEnding.size();
  if (temporary.size() < kAfter + 2 || temporary[0] != '.' || !temporary.ends_with(kEnding)) return {};
  const std::size_t end = temporary.size() - kAfter, other = temporary.find_first_not_of("0123456789abcdef", end + 1);
  return temporary[end] == '.' && other == temporary.size() - kEnding.size() ? temporary.substr(1, end - 1) : "";
}

std::optional<struct stat> Entry::status() const {
  struct stat status;
  if (!folder) return {};
  if (fstatat(folder->descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
  if (errno != ENOENT) fail_io("look at", path(), errno);
  return {};
}

Entry Tree::find(const std::string &name, bool makes_folders) {
  return {folder(base::folder_of(name), makes_folders), base::name_of(name)};
}

std::shared_ptr<base::Folder> Tree::folder(const std::string &name, bool makes) {
  if (name == ".") return base_;
  if (const auto known = open_.find(name); known != open_.end()) return known->second;
  const std::string last = base::name_of(name);
  const auto parent = folder(base::folder_of(name), makes);
  if (!parent) return nullptr;
  const auto open_it = [&] {
    return base::Descriptor(
        openat(parent->descriptor(), last.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  base::Descriptor opened = open_it();
  if (!opened && errno == ENOENT) {
    if (!makes) return nullptr;
    if (mkdirat(parent->descriptor(), last.c_str(), 0777) == 0) {
      made_.push_back(name);
    } else if (errno != EEXIST) {
      fail_io("make the folder", parent->path_of(last), errno);
    }
    opened = open_it();
  }
  if (!opened && (errno == ELOOP || errno == ENOTDIR))
    fail(TANDEM_ERROR_IO, parent->path_of(last), " is no folder, or a symbolic link: nothing is written through it");
  if (!opened) fail_io("open the folder", parent->path_of(last), errno);
  if (open_.size() >= kMostOpen) open_.clear();
  return open_[name] = std::make_shared<base::Folder>(parent->path_of(last), std::move(opened));
}

void Tree::keep_made(bool syncs) {
  for (const std::string &name : made_)
    if (syncs) find(name).folder->sync();
  made_.clear();
}

void Tree::remove_made() noexcept {
  try {
    while (!made_.empty()) {
      const Entry entry = find(made_.back());
      made_.pop_back();
      if (entry.folder) unlinkat(entry.folder->descriptor(), entry.name.c_str(), AT_REMOVEDIR);
    }
  } catch (...) {  // they stay
  }
}

}  // namespace tandem::par2
