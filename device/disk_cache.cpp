// SPDX-License-Identifier: Apache-2.0
#include "device/disk_cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/descriptor.hpp"
#include "base/format.hpp"

namespace tandem::device {
namespace {

constexpr std::string_view kSuffix = ".program";
constexpr std::string_view kTemporary = ".new-";
constexpr std::uint64_t kMostEntryBytes = 32 << 20;

// The start of an entry; the program follows. In the machine's own byte order, because a cache is not moved to others.
struct Header {
  char magic[8] = {'T', 'N', 'D', 'M', 'C', 'L', '0', '2'};
  std::uint64_t byte_count = 0;
  Key key;
  Key content;
};

bool read_all(const base::Descriptor &file, void *bytes, std::size_t count) noexcept {
  char *next = static_cast<char *>(bytes);
  while (count != 0) {
    const ssize_t got = read(file.get(), next, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

// Like mkdir -p, new folders 0700.
void make_folders(const std::string &path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0700);
    if (slash == std::string::npos) return;
  }
}

std::string name_of(const Key &key) { return hex(key) + std::string(kSuffix); }

}  // namespace

Key fnv1a_128(std::string_view bytes, const Key &start) noexcept {
  __extension__ using Number = unsigned __int128;
  constexpr Number kPrime = (Number{1} << 88) + 0x13b;
  Number hash = Number{start.high} << 64 | start.low;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * kPrime;
  return {static_cast<std::uint64_t>(hash), static_cast<std::uint64_t>(hash >> 64)};
}

Key key_of(std::initializer_list<std::string_view> parts) {
  Key key = kFnvOffsetBasis;
  for (const std::string_view part : parts) {
    const std::uint64_t bytes = part.size();
    key = fnv1a_128({reinterpret_cast<const char *>(&bytes), sizeof bytes}, key);
    key = fnv1a_128(part, key);
  }
  return key;
}

std::string hex(const Key &key) { return base::format("{:016x}{:016x}", key.high, key.low); }

std::string default_cache_folder(const std::string &backend) {
  const auto variable = [](const char *name) {
    const char *value = secure_getenv(name);  // a set-uid program ignores the user's environment
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string own = variable("TANDEM_CACHE_DIR"); !own.empty()) return own + "/" + backend;
  // XDG Base Directory Specification: ignore a path that is not absolute.
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/')) return xdg + "/tandem/" + backend;
  if (const std::string home = variable("HOME"); home.starts_with('/')) return home + "/.cache/tandem/" + backend;
  return {};
}

DiskCache::DiskCache(const std::string &folder, const base::Log &log, std::uint64_t most_bytes)
    : log_(log), most_bytes_(most_bytes) {
  if (folder.empty()) return;
  make_folders(folder);
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  std::string reason;
  struct stat found {};
  if (opened < 0) {
    reason = std::strerror(errno);
  } else if (fstat(opened, &found) != 0) {
    reason = std::strerror(errno);
  } else if (found.st_uid != geteuid()) {
    reason = base::format("it belongs to user {}, not to {}", found.st_uid, geteuid());
  } else if ((found.st_mode & 077) != 0) {
    reason = base::format("its mode is {:o}, others may use it; 0700 is needed", found.st_mode & 07777);
  }
  if (reason.empty()) {
    folder_ = opened;
    return;
  }
  if (opened >= 0) close(opened);
  log_.say(TANDEM_LOG_WARNING, base::format("cache folder {} not used: {}", folder, reason));
}

DiskCache::~DiskCache() {
  if (folder_ >= 0) close(folder_);
}

bool DiskCache::has(const Key &key) const noexcept {
  try {
    return folder_ >= 0 && faccessat(folder_, name_of(key).c_str(), R_OK, 0) == 0;
  } catch (const std::bad_alloc &) {
    return false;
  }
}

std::optional<std::vector<unsigned char>> DiskCache::load(const Key &key) const {
  if (folder_ < 0) return {};
  const std::string name = name_of(key);
  const base::Descriptor file(openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return {};
  struct stat found {};
  Header header;
  const Header wanted;
  std::vector<unsigned char> bytes;
  bool good = fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
              (found.st_mode & 022) == 0 && read_all(file, &header, sizeof header) &&
              std::memcmp(header.magic, wanted.magic, sizeof wanted.magic) == 0 && header.key == key &&
              header.byte_count <= kMostEntryBytes &&
              static_cast<std::uint64_t>(found.st_size) == sizeof header + header.byte_count;
  if (good) {
    bytes.resize(header.byte_count);
    good = read_all(file, bytes.data(), bytes.size()) &&
           key_of({{reinterpret_cast<const char *>(bytes.data()), bytes.size()}}) == header.content;
  }
  if (!good) {
    log_.say(TANDEM_LOG_WARNING, base::format("cache entry {} is damaged; it is removed and built again", name));
    unlinkat(folder_, name.c_str(), 0);
    return {};
  }
  futimens(file.get(), nullptr);  // marks the entry as used: not the oldest any more
  return bytes;
}

void DiskCache::store(const Key &key, const std::vector<unsigned char> &bytes) noexcept {
  if (folder_ < 0 || bytes.empty() || bytes.size() > std::min(kMostEntryBytes, most_bytes_)) return;
  try {
    static std::atomic<unsigned> next{0};
    Header header;
    header.byte_count = bytes.size();
    header.key = key;
    header.content = key_of({{reinterpret_cast<const char *>(bytes.data()), bytes.size()}});
    const std::string temporary = base::format("{}{}-{}-{}", kTemporary, hex(key), getpid(), next.fetch_add(1));
    bool written = false;
    {
      const base::Descriptor file(
          openat(folder_, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!file.is_open()) return;
      written = file.write_all(&header, sizeof header) && file.write_all(bytes.data(), bytes.size());
    }
    if (!written || renameat(folder_, temporary.c_str(), folder_, name_of(key).c_str()) != 0) {
      log_.say(TANDEM_LOG_INFO, base::format("a program could not be kept on disk: {}", std::strerror(errno)));
      unlinkat(folder_, temporary.c_str(), 0);
      return;
    }
    make_room();
  } catch (const std::bad_alloc &) {  // it is not kept then
  }
}

void DiskCache::remove(const Key &key) noexcept {
  try {
    if (folder_ >= 0) unlinkat(folder_, name_of(key).c_str(), 0);
  } catch (const std::bad_alloc &) {  // it stays; load() looks at it again
  }
}

void DiskCache::make_room() noexcept try {
  struct Entry {
    std::string name;
    std::uint64_t bytes;
    timespec used;
  };
  const int again = openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR *)> folder(fdopendir(again), closedir);
  if (folder == nullptr) {
    close(again);
    return;
  }
  constexpr time_t kAbandonedSeconds = 3600;  // a temporary of this age has no writer any more
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  while (const dirent *entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    const bool is_temporary = name.starts_with(kTemporary);
    struct stat found {};
    if ((!name.ends_with(kSuffix) && !is_temporary) ||
        fstatat(folder_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode))
      continue;
    if (is_temporary) {
      if (time(nullptr) - found.st_mtime > kAbandonedSeconds) unlinkat(folder_, name.c_str(), 0);
      continue;
    }
    total += static_cast<std::uint64_t>(found.st_size);
    entries.push_back({name, static_cast<std::uint64_t>(found.st_size), found.st_mtim});
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const Entry &entry : entries) {
    if (total <= most_bytes_) return;
    unlinkat(folder_, entry.name.c_str(), 0);
    total -= entry.bytes;
  }
} catch (const std::bad_alloc &) {  // the next store tries again
}

}  // namespace tandem::device
