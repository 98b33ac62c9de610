// SPDX-License-Identifier: Apache-2.0
#include "device/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/os.hpp"
#include "base/pending_file.hpp"
#include "base/text.hpp"

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

bool read_all(const base::Descriptor &file, void *bytes, std::size_t count, std::uint64_t offset) noexcept {
  return base::read_at(file.get(), static_cast<std::byte *>(bytes), count, offset) == static_cast<std::int64_t>(count);
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

std::string hex(const Key &key) { return base::text(base::digits(key.high, 16, 16), base::digits(key.low, 16, 16)); }

std::string default_cache_folder(const std::string &backend) {
  const auto variable = [](const char *name) {
    const char *value = base::os::secure_variable(name);
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
  base::Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  std::string reason;
  struct stat found {};
  if (!opened || fstat(opened.get(), &found) != 0) {
    reason = std::strerror(errno);
  } else if (found.st_uid != geteuid()) {
    reason = base::text("it belongs to user ", found.st_uid, ", not to ", geteuid());
  } else if ((found.st_mode & 077) != 0) {
    reason = base::text("its mode is ", base::digits(found.st_mode & 07777, 8), ", others may use it; 0700 is needed");
  }
  if (reason.empty())
    folder_ = std::make_shared<base::Folder>(folder, std::move(opened));
  else
    log_.say(TANDEM_LOG_WARNING, base::text("cache folder ", folder, " not used: ", reason));
}

bool DiskCache::has(const Key &key) const {
  return in_use() && faccessat(folder_->descriptor(), name_of(key).c_str(), R_OK, 0) == 0;
}

std::optional<std::vector<unsigned char>> DiskCache::load(const Key &key) const {
  if (!in_use()) return {};
  const std::string name = name_of(key);
  const base::Descriptor file = folder_->open_file(name, O_RDONLY);
  if (!file) return {};
  struct stat found {};
  Header header;
  const Header wanted;
  std::vector<unsigned char> bytes;
  bool good = fstat(file.get(), &found) == 0 && found.st_uid == geteuid() && (found.st_mode & 022) == 0 &&
              read_all(file, &header, sizeof header, 0) &&
              std::memcmp(header.magic, wanted.magic, sizeof wanted.magic) == 0 && header.key == key &&
              header.byte_count <= kMostEntryBytes &&
              static_cast<std::uint64_t>(found.st_size) == sizeof header + header.byte_count;
  if (good) {
    bytes.resize(header.byte_count);
    good = read_all(file, bytes.data(), bytes.size(), sizeof header) &&
           key_of({{reinterpret_cast<const char *>(bytes.data()), bytes.size()}}) == header.content;
  }
  if (!good) {
    log_.say(TANDEM_LOG_WARNING, base::text("cache entry ", name, " is damaged; it is removed and built again"));
    unlinkat(folder_->descriptor(), name.c_str(), 0);
    return {};
  }
  futimens(file.get(), nullptr);  // marks the entry as used: not the oldest any more
  return bytes;
}

void DiskCache::store(const Key &key, const std::vector<unsigned char> &bytes) noexcept {
  if (!in_use() || bytes.empty() || bytes.size() > std::min(kMostEntryBytes, most_bytes_)) return;
  try {
    static std::atomic<unsigned> next{0};
    Header header;
    header.byte_count = bytes.size();
    header.key = key;
    header.content = key_of({{reinterpret_cast<const char *>(bytes.data()), bytes.size()}});
    const std::string temporary = base::text(kTemporary, hex(key), "-", getpid(), "-", next.fetch_add(1));
    try {
      base::PendingFile file(folder_, temporary, 0600);
      const auto *program = reinterpret_cast<const std::byte *>(bytes.data());
      if (!base::write_at(file.descriptor(), reinterpret_cast<const std::byte *>(&header), sizeof header, 0) ||
          !base::write_at(file.descriptor(), program, bytes.size(), sizeof header))
        base::fail_io("write", file.path(), errno);
      file.finish(true);  // not synced: load() finds what a power cut has damaged
      file.rename(name_of(key), true, true);
    } catch (const base::Error &error) {
      return log_.say(TANDEM_LOG_INFO, base::text("a program could not be kept on disk: ", error.what()));
    }
    make_room();
  } catch (const std::bad_alloc &) {  // it is not kept then
  }
}

void DiskCache::remove(const Key &key) {
  if (in_use()) unlinkat(folder_->descriptor(), name_of(key).c_str(), 0);
}

void DiskCache::make_room() noexcept try {
  struct Entry {
    std::string name;
    std::uint64_t bytes;
    timespec used;
  };
  constexpr time_t kAbandonedSeconds = 3600;  // a temporary of this age has no writer any more
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  for (const std::string &name : folder_->names()) {
    const bool is_temporary = name.starts_with(kTemporary);
    struct stat found {};
    if ((!name.ends_with(kSuffix) && !is_temporary) ||
        fstatat(folder_->descriptor(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode))
      continue;
    if (is_temporary) {
      if (time(nullptr) - found.st_mtime > kAbandonedSeconds) unlinkat(folder_->descriptor(), name.c_str(), 0);
      continue;
    }
    total += static_cast<std::uint64_t>(found.st_size);
    entries.push_back({name, static_cast<std::uint64_t>(found.st_size), base::os::write_time(found)});
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const Entry &entry : entries) {
    if (total <= most_bytes_) return;
    unlinkat(folder_->descriptor(), entry.name.c_str(), 0);
    total -= entry.bytes;
  }
} catch (const std::exception &) {  // the next store tries again
}

}  // namespace tandem::device
