// SPDX-License-Identifier: Apache-2.0
#include "par2/set.hpp"

#include <strings.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_set>

#include "base/bytes.hpp"
#include "base/folder.hpp"
#include "base/interval_set.hpp"
#include "par2/error.hpp"
#include "par2/files.hpp"

namespace tandem::par2 {
namespace {

bool ends_in(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && strncasecmp(name.data() + name.size() - end.size(), end.data(), end.size()) == 0;
}

// "a.vol03+4.par2" and "a.par2" -> "a".
std::string base_of(std::string name) {
  if (!is_packet_file_name(name)) return name;
  name.resize(name.size() - 5);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || strncasecmp(name.c_str() + dot, ".vol", 4) != 0) return name;
  const std::string numbers = name.substr(dot + 4);
  const std::size_t sign = numbers.find_first_of("+-");
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (sign != std::string::npos && is_number(numbers.substr(0, sign)) && is_number(numbers.substr(sign + 1)))
    name.resize(dot);
  return name;
}

struct Critical {
  Kind kind;
  Digest set_id;
  Bytes body;
};
struct Recovery {
  Header header;
  std::uint64_t offset;
  std::uint32_t exponent;
};

// The packets of one file. A header says where its packet ends, and the walk goes on there. If the packet turns out to
// be damaged, another walk begins inside it, and ends at a packet that the first one found.
class Walk {
 public:
  explicit Walk(const std::string &path) : file_(open_regular(path)) {
    const auto status = status_of(path);
    if (!file_ || !status) return;
    bytes_ = status->bytes;
    starts_.push_back(0);
  }

  void run() {
    while (!starts_.empty()) {
      const std::uint64_t first = starts_.back();
      starts_.pop_back();
      walk(first);
    }
  }
  // A packet that began here is damaged.
  void add_damaged(std::uint64_t offset, std::uint64_t packet_bytes) {
    // Hostile files may claim long packets at each byte.
    damaged_bytes_ += packet_bytes;
    if (damaged_bytes_ < 8 * bytes_ + kMostCriticalBytes) starts_.push_back(offset + 1);
  }
  void add_intact(std::uint64_t offset, std::uint64_t packet_bytes) {
    used_.add(offset, offset + packet_bytes);
    ++packet_count;
  }

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t used_bytes() const {
    std::uint64_t sum = 0;
    for (const auto &[first, end] : used_.ends()) sum += end - first;
    return sum;
  }

  std::vector<Critical> critical;  // intact, each once
  std::vector<Recovery> recovery;  // not yet checked
  std::uint32_t packet_count = 0;

 private:
  struct Found {
    Header header;
    std::uint64_t offset;
  };

  void walk(std::uint64_t first) {
    std::uint64_t wanted = kLeastRead;
    for (std::uint64_t at = first; at + kHeaderBytes <= bytes_;) {
      fill(at, std::min(wanted, bytes_ - at));
      if (buffer_.empty()) return;
      found_.clear();
      const std::uint64_t next = walk_buffer(at);
      check_found(at);
      if (next == at && wanted >= kMostCriticalBytes) return;  // the file has become shorter
      // After a long packet nothing but a header may be of interest.
      wanted = next <= at + buffer_.size() ? std::min(2 * wanted, kMostCriticalBytes) : kLeastRead;
      at = next;
    }
  }

  void fill(std::uint64_t at, std::uint64_t byte_count) {
    buffer_.resize(byte_count);
    const std::int64_t got = base::read_at(file_.get(), buffer_.data(), buffer_.size(), at);
    buffer_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }

  // Returns where the next buffer begins.
  std::uint64_t walk_buffer(std::uint64_t begin) {
    std::size_t at = 0;
    for (;;) {
      const void *magic = memmem(buffer_.data() + at, buffer_.size() - at, kMagic, sizeof kMagic);
      if (magic == nullptr) return begin + buffer_.size() - std::min(buffer_.size() - 1, sizeof kMagic - 1);
      at = static_cast<std::size_t>(static_cast<const std::byte *>(magic) - buffer_.data());
      if (begin + at + kHeaderBytes > bytes_) return bytes_;
      if (at + kRecoveryPrefixBytes > buffer_.size() && begin + buffer_.size() < bytes_) return begin + at;
      const auto header = parse_header(std::span(buffer_).subspan(at), bytes_ - begin - at);
      if (!header || (header->kind != Kind::recovery && header->bytes > kMostCriticalBytes) ||
          (header->kind == Kind::recovery && header->bytes < kRecoveryPrefixBytes)) {
        ++at;
        continue;
      }
      if (header->kind != Kind::recovery && at + header->bytes > buffer_.size()) return begin + at;
      if (!visited_.insert(begin + at).second) return bytes_;
      if (header->kind == Kind::recovery) {
        recovery.push_back({*header, begin + at, base::load<std::uint32_t>(buffer_.data() + at + kHeaderBytes)});
      } else if (is_copy(*header, std::span(buffer_).subspan(at, header->bytes))) {
        add_intact(begin + at, header->bytes);
      } else {
        found_.push_back({*header, begin + at});
      }
      if (at + header->bytes >= buffer_.size()) return begin + at + header->bytes;
      at += header->bytes;
    }
  }

  // Volumes repeat their critical packets: to compare them with the first copy is faster than to hash them.
  bool is_copy(const Header &header, std::span<const std::byte> bytes) const {
    const auto known = seen_.find(header.md5);
    if (known == seen_.end()) return false;
    const Critical &first = critical[known->second];
    return first.kind == header.kind && first.set_id == header.set_id &&
           first.body.size() + kHeaderBytes == bytes.size() &&
           (first.body.empty() || std::memcmp(bytes.data() + kHeaderBytes, first.body.data(), first.body.size()) == 0);
  }

  void check_found(std::uint64_t begin) {
    std::vector<Md5> streams(found_.size());
    std::vector<Md5Part> parts;
    std::vector<Md5 *> all;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      parts.push_back({&streams[i], buffer_.data() + (found_[i].offset - begin) + kHashedFrom,
                       found_[i].header.bytes - kHashedFrom});
      all.push_back(&streams[i]);
    }
    Md5Streams::update(parts);
    const std::vector<Digest> digests = Md5Streams::finish(all);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const auto &[header, offset] = found_[i];
      if (digests[i] != header.md5) {
        add_damaged(offset, header.bytes);
        continue;
      }
      add_intact(offset, header.bytes);
      if (header.kind == Kind::other || !seen_.emplace(header.md5, critical.size()).second) continue;
      const auto body = buffer_.begin() + static_cast<std::ptrdiff_t>(offset - begin + kHeaderBytes);
      critical.push_back(
          {header.kind, header.set_id, Bytes(body, body + static_cast<std::ptrdiff_t>(header.bytes - kHeaderBytes))});
    }
  }

  static constexpr std::uint64_t kLeastRead = 4096;

  base::Descriptor file_;
  std::uint64_t bytes_ = 0, damaged_bytes_ = 0;
  std::vector<std::uint64_t> starts_;          // of walks to do
  std::unordered_set<std::uint64_t> visited_;  // beginnings of packets
  base::IntervalSet used_;
  Bytes buffer_;
  std::vector<Found> found_;
  std::map<Digest, std::size_t> seen_;  // where `critical` has them
};

// Checks recovery packets by their MD5 and removes damaged ones. Walks through these; what is found there is checked,
// too.
void check_recovery(std::vector<Walk> &walks, const std::vector<std::string> &paths, base::TaskPool &pool,
                    const Progress &progress) {
  std::vector<std::vector<Recovery>> intact(walks.size());
  for (;;) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < walks.size(); ++i)
      for (const Recovery &each : walks[i].recovery)
        ranges.push_back({&paths[i], each.offset + kHashedFrom, each.header.bytes - kHashedFrom});
    if (ranges.empty()) break;
    for (const Range &range : ranges) progress.add_total(range.bytes);
    sum_ranges(ranges, false, pool, progress.done);
    std::size_t next = 0;
    for (std::size_t i = 0; i < walks.size(); ++i) {
      for (const Recovery &each : std::exchange(walks[i].recovery, {})) {
        const Range &range = ranges[next++];
        if (range.is_readable && range.sum.md5 == each.header.md5) {
          walks[i].add_intact(each.offset, each.header.bytes);
          intact[i].push_back(each);
        } else {
          walks[i].add_damaged(each.offset, each.header.bytes);
        }
      }
      walks[i].run();
    }
  }
  for (std::size_t i = 0; i < walks.size(); ++i) walks[i].recovery = std::move(intact[i]);
}

class Assembly {
 public:
  explicit Assembly(const std::vector<Walk> &walks) {
    for (const Walk &walk : walks)
      for (const Critical &each : walk.critical) add(each);
    if (!has_main_) fail(TANDEM_ERROR_DAMAGED, "no file has an intact main packet");
  }

  void add_files(Set &set) {
    set.id = id_;
    set.slice_bytes = main_.slice_bytes;
    std::size_t lost = 0;
    std::set<Digest> ids;
    std::set<std::string> names;
    for (const auto *list : {&main_.recoverable, &main_.others}) {
      for (const Digest &id : *list) {
        if (!ids.insert(id).second) fail(TANDEM_ERROR_UNSUPPORTED, "the main packet has a file twice");
        const auto description = descriptions_.find(id);
        if (description == descriptions_.end()) {
          ++lost;
          continue;
        }
        File file;
        static_cast<Description &>(file) = description->second;
        if (!is_safe_name(file.name))
          fail(TANDEM_ERROR_UNSUPPORTED,
               text("the set has a file \"", file.name, "\", which may lie outside of its folder"));
        if (!names.insert(file.name).second)
          fail(TANDEM_ERROR_UNSUPPORTED, text("the set has two files \"", file.name, "\""));
        file.is_recoverable = list == &main_.recoverable;
        const std::uint64_t slices = slices_of(file.bytes, set.slice_bytes);
        if (file.is_recoverable) {
          if (slices > kMostSlices - set.slice_count) {
            fail(TANDEM_ERROR_UNSUPPORTED,
                 text("the set has more than ", kMostSlices, " slices of ", set.slice_bytes, " bytes"));
          }
          file.first_slice = set.slice_count;
          file.slice_count = slices;
          set.slice_count += slices;
        }
        if (const auto sums = sums_.find(id); sums != sums_.end() && sums->second.size() == slices)
          file.sums = sums->second;
        set.files.push_back(std::move(file));
      }
    }
    std::uint64_t largest = kMostPaddedBytes;
    for (const File &file : set.files) largest = std::max(largest, file.bytes);
    if (lost == 0 && set.slice_bytes - 4 >= largest)
      fail(TANDEM_ERROR_UNSUPPORTED, text("slices of ", set.slice_bytes, " bytes are larger than each file"));
    if (lost != 0)
      fail(TANDEM_ERROR_DAMAGED, text("the descriptions of ", lost, " of ", ids.size(), " files are lost"));
  }

 private:
  void add(const Critical &each) {
    if (each.kind == Kind::main && !has_main_ && Md5::of(each.body.data(), each.body.size()) == each.set_id) {
      if (auto main = parse_main(each.body)) {
        main_ = std::move(*main);
        id_ = each.set_id;
        has_main_ = true;
        for (const Critical &earlier : std::exchange(waiting_, {})) add(earlier);
      }
    }
    if (!has_main_) {
      waiting_.push_back(each);
    } else if (each.set_id == id_) {
      if (each.kind == Kind::description) {
        if (auto file = parse_description(each.body)) descriptions_.emplace(file->id, std::move(*file));
      } else if (each.kind == Kind::sums) {
        if (auto sums = parse_sums(each.body)) sums_.emplace(sums->id, std::move(sums->sums));
      }
    }
  }

  bool has_main_ = false;
  Digest id_;
  Main main_;
  std::vector<Critical> waiting_;  // before the first main packet
  std::map<Digest, Description> descriptions_;
  std::map<Digest, std::vector<SliceSum>> sums_;
};

}  // namespace

bool is_packet_file_name(std::string_view path) { return ends_in(path, ".par2"); }

std::vector<std::string> packet_files_of(const std::string &path) {
  std::vector<std::string> paths;
  std::string given = path;
  if (!is_packet_file_name(given) && status_of(given + ".par2")) given += ".par2";
  const base::Folder folder(base::folder_of(given));
  const std::string name = base::name_of(given), base_name = base_of(name);
  if (status_of(given)) paths.push_back(given);
  // The first main packet names the set, so files that only begin with the same name come last.
  for (const bool is_of_base : {true, false})
    for (const std::string &other : folder.names())
      if (other != name && is_packet_file_name(other) && (base_of(other) == base_name) == is_of_base &&
          (is_of_base || other.starts_with(base_name + ".")))
        paths.push_back(folder.path() == "." && !given.starts_with("./") ? other : folder.path_of(other));
  if (paths.empty()) fail_io("find a set", path, ENOENT);
  return paths;
}

Set read_set(const std::vector<std::string> &paths, base::TaskPool &pool, const Progress &progress) {
  std::vector<Walk> walks;
  for (const std::string &path : paths) walks.emplace_back(path);
  pool.run(
      walks.size(), [&](std::size_t i) { walks[i].run(); }, base::TaskPool::Tasks::compute);
  check_recovery(walks, paths, pool, progress);
  Set set;
  Assembly(walks).add_files(set);
  std::map<std::uint32_t, RecoverySlice> recovery;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    PacketFile file{paths[i], walks[i].bytes(), walks[i].used_bytes(), walks[i].packet_count, 0};
    for (const Recovery &each : walks[i].recovery) {
      if (each.header.set_id != set.id || each.header.bytes != kRecoveryPrefixBytes + set.slice_bytes ||
          each.exponent >= kExponents)
        continue;
      ++file.recovery_count;
      recovery.emplace(each.exponent,
                       RecoverySlice{each.exponent, static_cast<std::uint32_t>(i), each.offset + kRecoveryPrefixBytes});
    }
    set.packet_files.push_back(std::move(file));
  }
  for (const auto &[exponent, slice] : recovery) set.recovery.push_back(slice);
  return set;
}

}  // namespace tandem::par2
