// SPDX-License-Identifier: Apache-2.0
// Compiled programs on disk. They are run as code. So a folder that another user could have written is not used, and an
// entry with a wrong checksum counts as missing. docs/environment.md tells the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder.hpp"
#include "base/log.hpp"

namespace tandem::device {

struct Key {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Key &) const = default;
};

// FNV-1a with 128 bits (draft-eastlake-fnv-21). `start` is the hash of the bytes before these. It finds damage. It is
// no cryptographic hash: the folder's mode keeps other users out.
inline constexpr Key kFnvOffsetBasis = {0x62b821756295c58d, 0x6c62272e07bb0142};
Key fnv1a_128(std::string_view bytes, const Key &start = kFnvOffsetBasis) noexcept;

// The hash of the parts, each with its length.
Key key_of(std::initializer_list<std::string_view> parts);
std::string hex(const Key &key);

struct KeyHash {
  std::size_t operator()(const Key &key) const noexcept { return static_cast<std::size_t>(key.low); }
};

// The folder for a backend's programs, from the environment: its name in TANDEM_CACHE_DIR, else tandem/NAME in
// XDG_CACHE_HOME or ~/.cache; "" if none is set.
std::string default_cache_folder(const std::string &backend);

class DiskCache {
 public:
  // Makes the folder (0700) if it is missing. A folder that is not the calling user's alone is not used, and the log
  // says so: then nothing is found and nothing is stored. "": the same without a log entry.
  DiskCache(const std::string &folder, const base::Log &log, std::uint64_t most_bytes = kMostBytes);

  bool in_use() const noexcept { return folder_ != nullptr; }
  bool has(const Key &key) const;
  std::optional<std::vector<unsigned char>> load(
      const Key &key) const;  // nothing for a damaged entry, which is removed

  // Writes a temporary and renames it, so that other processes see all of it or nothing. Then the oldest entries are
  // removed until the folder holds most_bytes at most. A failure (a full disk) is only logged.
  void store(const Key &key, const std::vector<unsigned char> &bytes) noexcept;
  void remove(const Key &key);

  static constexpr std::uint64_t kMostBytes = 64 << 20;

 private:
  void make_room() noexcept;

  base::Log log_;
  std::uint64_t most_bytes_;
  std::shared_ptr<base::Folder> folder_;  // null: not in use
};

}  // namespace tandem::device
