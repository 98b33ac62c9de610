// Compiled programs on disk. What lies there is run as code, so a folder that anybody else could have written is not
// used, and an entry whose checksum does not fit is not there. docs/ENVIRONMENT.md says where the folder is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"

namespace tandem::device {

struct Key {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Key &) const = default;
};

// 128-bit xxHash of the parts, each with its length.
Key key_of(std::initializer_list<std::string_view> parts);
std::string hex(const Key &key);

struct KeyHash {
  std::size_t operator()(const Key &key) const noexcept { return static_cast<std::size_t>(key.low); }
};

// The folder for a backend's programs that the environment names: its name in TANDEM_CACHE_DIR, else tandem/NAME in
// XDG_CACHE_HOME or ~/.cache; "" without any.
std::string default_cache_folder(const std::string &backend);

class DiskCache {
 public:
  // Makes the folder (0700) if it is missing. One that is not a folder of the calling user's alone is left alone, and
  // the log says so: then nothing is found and nothing is kept. "": the same, without a word.
  DiskCache(const std::string &folder, const base::Log &log, std::uint64_t most_bytes = kMostBytes);
  ~DiskCache();
  DiskCache(const DiskCache &) = delete;
  DiskCache &operator=(const DiskCache &) = delete;

  bool in_use() const noexcept { return folder_ >= 0; }
  bool has(const Key &key) const noexcept;
  std::optional<std::vector<unsigned char>> load(
      const Key &key) const;  // nothing for a damaged entry, which is removed

  // By a temporary and a rename, so that other processes see all of it or nothing; then the oldest entries go until the
  // folder holds most_bytes at most. A failure (a full disk) is none: the log hears of it.
  void store(const Key &key, const std::vector<unsigned char> &bytes) noexcept;
  void remove(const Key &key) noexcept;

  static constexpr std::uint64_t kMostBytes = 64 << 20;

 private:
  void make_room() noexcept;

  base::Log log_;
  std::uint64_t most_bytes_;
  int folder_ = -1;
};

}  // namespace tandem::device
