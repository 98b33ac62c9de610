// SPDX-License-Identifier: Apache-2.0
#include "par2/set.hpp"

#include <fcntl.h>
#include <limits.h>
#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "base/bytes.hpp"
#include "base/folder.hpp"
#include "base/interval_set.hpp"
#include "par2/files.hpp"
#include "par2/tree.hpp"

namespace tandem::par2 {
namespace {

bool ends_in(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && strncasecmp(name.data() + name.size() - end.size(), end.data(), end.size()) == 0;
}

bool is_too_long(std::string_view name) {
  if (name.size() >= PATH_MAX) return true;
  for (std::size_t begin = 0, end; begin <= name.size(); begin = end + 1) {
    end = std::min(name.find_first_of("/\\", begin), name.size());
    if (end - begin > NAME_MAX) return true;
  }
  return false;
}

using Origin = std::pair<std::size_t, std::uint64_t>;  // number of the file, offset
struct Critical {
  Kind kind;
  Digest set_id;
  Bytes body;
  Origin first;             // of its copies
  std::vector<bool> files;  // that have it, by number

  void note(Origin place) {
    first = std::min(first, place);
    if (files.size() <= place.first) files.resize(place.first + 1);
    files[place.first] = true;
  }
};

// The critical packets of all files, each once: volumes repeat them.
class Criticals {
 public:
  // Whether this is a copy. To compare it is faster than to hash it.
  bool has(const Header &header, std::span<const std::byte> bytes, Origin place) {
    Critical *same = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = known_.find(header.md5); known != known_.end()) same = &known->second;
    }
    if (same == nullptr || same->kind != header.kind || same->set_id != header.set_id ||
        same->body.size() + kHeaderBytes != bytes.size() ||
        (!same->body.empty() && std::memcmp(same->body.data(), &bytes[kHeaderBytes], same->body.size()) != 0))
      return false;
    const std::lock_guard lock(mutex_);
    same->note(place);
    return true;
  }
  void add(const Header &header, std::span<const std::byte> bytes, Origin place) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = known_.try_emplace(header.md5, Critical{header.kind, header.set_id, {}, place, {}});
    if (is_new) at->second.body.assign(bytes.data() + kHeaderBytes, bytes.data() + bytes.size());
    at->second.note(place);
  }
  std::vector<const Critical *> in_order() const {
    std::vector<const Critical *> all;
    for (const auto &[md5, each] : known_) all.push_back(&each);
    std::ranges::sort(all, {}, &Critical::first);
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<Digest, Critical> known_;
};

struct Recovery {
  Header header;
  std::uint64_t offset;
  std::uint32_t exponent;
  std::uint64_t walk_end;  // of the walk that found it
};

// The packets of one file. A header says where its packet ends, and the walk goes on there. If the packet turns out to
// be damaged, another walk looks for packets that begin inside it.
class Walk {
 public:
  Walk(const std::string &path, std::size_t number, Criticals &criticals, base::Meter &meter)
      : path_(path), number_(number), criticals_(criticals), meter_(meter) {}

  void run() {
    if (parts_.empty()) return;
    file_ = open_regular(path_);
    if (!file_ && !is_absent(errno)) fail_io("open", path_, errno);
    struct stat status;
    if (file_ && fstat(file_.get(), &status) != 0) fail_io("look at", path_, errno);
    if (file_ && bytes_ == 0) bytes_ = static_cast<std::uint64_t>(status.st_size);
    if (file_ && !status_) status_ = status;
    while (!parts_.empty()) {
      const auto [first, end] = parts_.back();
      parts_.pop_back();
      if (file_) walk(first, end);
    }
    file_.reset();
    buffer_ = Bytes();  // {} would keep the memory
    found_ = std::vector<Found>();
  }
  // A packet that began here is damaged.
  void add_damaged(std::uint64_t offset, std::uint64_t packet_bytes, std::uint64_t walk_end) {
    const std::uint64_t end = std::min(offset + packet_bytes, walk_end);
    // Hostile files may claim long packets at each byte.
    damaged_bytes_ += end - offset;
    if (damaged_bytes_ < 8 * bytes_ + kMostCriticalBytes) parts_.emplace_back(offset + 1, end);
  }
  void add_intact(std::uint64_t offset, const Header &header) {
    used_.add(offset, offset + header.bytes);
    // Hostile files may have many sets.
    if (packet_counts_.size() < kMostSetIds || packet_counts_.contains(header.set_id)) ++packet_counts_[header.set_id];
  }

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t used_bytes() const {
    std::uint64_t sum = 0;
    for (const auto &[first, end] : used_.ends()) sum += end - first;
    return sum;
  }

  std::uint32_t packet_count(const Digest &set_id) const {
    const auto count = packet_counts_.find(set_id);
    return count != packet_counts_.end() ? count->second : 0;
  }

  bool has_others(const Digest &set_id) const {
    return has_unknown_ || packet_counts_.size() > packet_counts_.count(set_id);
  }
  const std::optional<struct stat> &status() const { return status_; }

  std::vector<Recovery> recovery;  // not yet checked

 private:
  struct Found {
    Header header;
    std::uint64_t offset;
  };

  // Packets that begin in first .. end - 1.
  void walk(std::uint64_t first, std::uint64_t end) {
    std::uint64_t wanted = kLeastRead;
    for (std::uint64_t at = first; at < end && at + kHeaderBytes <= bytes_;) {
      buffer_.resize(std::min(wanted, bytes_ - at));
      buffer_.resize(read_past_errors(file_, path_, buffer_.data(), buffer_.size(), at));
      meter_.done(0);
      if (buffer_.empty()) return;
      found_.clear();
      const std::uint64_t next = walk_buffer(at, end);
      check_found(at, end);
      if (next == at && wanted >= kMostCriticalBytes) return;  // the file has become shorter
      // After a long packet nothing but a header may be of interest.
      wanted = next <= at + buffer_.size() ? std::min(2 * wanted, kMostCriticalBytes) : kLeastRead;
      at = next;
    }
  }

  // Returns where the next buffer begins.
  std::uint64_t walk_buffer(std::uint64_t begin, std::uint64_t end) {
    std::size_t at = 0;
    for (;;) {
      const void *magic = memmem(buffer_.data() + at, buffer_.size() - at, kMagic, sizeof kMagic);
      if (magic == nullptr) return begin + buffer_.size() - std::min(buffer_.size() - 1, sizeof kMagic - 1);
      at = static_cast<std::size_t>(static_cast<const std::byte *>(magic) - buffer_.data());
      if (begin + at >= end || begin + at + kHeaderBytes > bytes_) return bytes_;
      if (at + kRecoveryPrefixBytes > buffer_.size() && begin + buffer_.size() < bytes_) return begin + at;
      const auto header = parse_header(std::span(buffer_).subspan(at), bytes_ - begin - at);
      if (!header || (header->kind != Kind::recovery && header->bytes > kMostCriticalBytes) ||
          (header->kind == Kind::recovery && header->bytes < kRecoveryPrefixBytes)) {
        ++at;
        continue;
      }
      if (header->kind != Kind::recovery && at + header->bytes > buffer_.size()) return begin + at;
      if (header->kind == Kind::recovery) {
        const auto exponent = base::load<std::uint32_t>(buffer_.data() + at + kHeaderBytes);
        if (recovery.size() < kMostRecovery) recovery.push_back({*header, begin + at, exponent, end});
      } else if (criticals_.has(*header, std::span(buffer_).subspan(at, header->bytes), {number_, begin + at})) {
        add_intact(begin + at, *header);
      } else {
        found_.push_back({*header, begin + at});
      }
      if (at + header->bytes >= buffer_.size()) return begin + at + header->bytes;
      at += header->bytes;
    }
  }

  void check_found(std::uint64_t begin, std::uint64_t end) {
    std::vector<Md5> streams(found_.size());
    std::vector<Md5Part> parts;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      parts.push_back({&streams[i], buffer_.data() + (found_[i].offset - begin) + kHashedFrom,
                       found_[i].header.bytes - kHashedFrom});
    }
    Md5Streams::update(parts);
    const std::vector<Digest> digests = Md5Streams::finish(streams);
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const auto &[header, offset] = found_[i];
      if (digests[i] != header.md5) {
        add_damaged(offset, header.bytes, end);
        continue;
      }
      add_intact(offset, header);
      has_unknown_ = has_unknown_ || header.kind == Kind::other;
      if (header.kind != Kind::other)
        criticals_.add(header, std::span(buffer_).subspan(offset - begin, header.bytes), {number_, offset});
    }
  }

  static constexpr std::uint64_t kLeastRead = 4096;
  static constexpr std::size_t kMostSetIds = 64;
  static constexpr std::size_t kMostRecovery = 16 * kExponents;  // beyond that no file of a program goes

  const std::string &path_;
  const std::size_t number_;
  Criticals &criticals_;
  base::Meter &meter_;
  base::Descriptor file_;
  std::uint64_t bytes_ = 0, damaged_bytes_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts_{{0, UINT64_MAX}};  // first, end: walks to do
  base::IntervalSet used_;
  bool has_unknown_ = false;  // packets of unknown kinds
  std::optional<struct stat> status_;
  std::map<Digest, std::uint32_t> packet_counts_;  // intact ones, by set
  Bytes buffer_;
  std::vector<Found> found_;
};

// Checks recovery packets by their MD5 and removes damaged ones. Walks through these; what is found there is checked,
// too.
void check_recovery(std::vector<Walk> &walks, const std::vector<std::string> &paths, bool reads, base::Crew &crew,
                    base::Meter &meter) {
  std::vector<std::vector<Recovery>> intact(walks.size());
  for (;;) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < walks.size(); ++i)
      for (const Recovery &each : walks[i].recovery)
        ranges.push_back({&paths[i], each.offset + kHashedFrom, each.header.bytes - kHashedFrom});
    if (ranges.empty()) break;
    if (reads) {
      for (const Range &range : ranges) meter.add_total(range.bytes);
      sum_ranges(ranges, false, crew, meter.counter());
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < walks.size(); ++i) {
      for (const Recovery &each : std::exchange(walks[i].recovery, {})) {
        const Range &range = ranges[next++];
        if (is_unreadable(range.error)) fail_io("read", *range.path, range.error);
        if (!reads || (range.error == 0 && range.sum.md5 == each.header.md5)) {
          walks[i].add_intact(each.offset, each.header);
          intact[i].push_back(each);
        } else {
          walks[i].add_damaged(each.offset, each.header.bytes, each.walk_end);
        }
      }
      walks[i].run();
    }
  }
  for (std::size_t i = 0; i < walks.size(); ++i) walks[i].recovery = std::move(intact[i]);
}

// What the critical packets of a set say.
struct Contents {
  std::optional<Main> main;
  std::map<Digest, Description> descriptions;
  std::map<Digest, std::vector<SliceSum>> sums;
  std::map<Digest, std::string> unicode_names;
};

// Makes a main packet that is lost: the size of a slice, and the ids of the files, which other packets name. The id of
// the set is the MD5 of its main packet, which proves it. left_bytes: that may still be hashed.
std::optional<Main> find_main(const Contents &contents, const Digest &set_id,
                              const std::set<std::uint64_t> &recovery_bytes, std::uint64_t &left_bytes) {
  std::set<Digest> ids;
  std::uint64_t least = 4, most = kMostSliceBytes;  // what the numbers of checksums allow
  for (const auto &[id, file] : contents.descriptions) ids.insert(id);
  for (const auto &[id, sums] : contents.sums) {
    const auto file = contents.descriptions.find(id);
    ids.insert(id);
    if (file == contents.descriptions.end() || file->second.bytes == 0 || sums.empty()) continue;
    least = std::max(least, slices_of(file->second.bytes, sums.size()));
    if (sums.size() > 1) most = std::min(most, (file->second.bytes - 1) / (sums.size() - 1));
  }
  if (ids.empty() || ids.size() > kMostFiles) return {};
  Main main{0, {ids.begin(), ids.end()}, {}};
  std::ranges::sort(main.recoverable, is_less);
  const auto is_right = [&](std::uint64_t slice_bytes) {
    main.slice_bytes = slice_bytes;
    const Bytes body = main_body(main);
    left_bytes -= std::min<std::uint64_t>(left_bytes, kHeaderBytes + body.size());
    return slice_bytes != 0 && Md5::of(body.data(), body.size()) == set_id;
  };
  for (const std::uint64_t bytes : recovery_bytes)
    if (left_bytes != 0 && is_right(bytes)) return main;
  for (std::uint64_t bytes = slices_of(least, 4) * 4; bytes <= most && left_bytes != 0; bytes += 4)
    if (is_right(bytes)) return main;
  return {};
}

class Assembly {
 public:
  // Of the first set with a main packet, or with packets that tell what it said. recovery_bytes: sizes that slices have
  // in recovery packets, by set.
  Assembly(const std::vector<const Critical *> &all, std::map<Digest, std::set<std::uint64_t>> recovery_bytes) {
    std::vector<Digest> ids;  // in the order of their first packets
    std::map<Digest, Contents> sets;
    for (const Critical *each : all) {
      const auto [known, is_new] = sets.try_emplace(each->set_id);
      Contents &set = known->second;
      if (is_new) ids.push_back(each->set_id);
      if (each->kind == Kind::description) {
        if (auto file = parse_description(each->body)) set.descriptions.emplace(file->id, std::move(*file));
      } else if (each->kind == Kind::sums) {
        if (auto sums = parse_sums(each->body)) set.sums.emplace(sums->id, std::move(sums->sums));
      } else if (each->kind == Kind::unicode) {
        if (auto name = parse_unicode(each->body)) set.unicode_names.insert(std::move(*name));
      } else if (each->kind == Kind::main && !set.main &&
                 Md5::of(each->body.data(), each->body.size()) == each->set_id) {
        set.main = parse_main(each->body);
      }
    }
    std::uint64_t left_bytes = 64u << 20;
    for (const Digest &id : ids) {
      Contents &set = sets[id];
      if (!set.main) set.main = find_main(set, id, recovery_bytes[id], left_bytes);
      if (!set.main) continue;
      id_ = id;
      main_ = std::move(*set.main);
      descriptions_ = std::move(set.descriptions);
      sums_ = std::move(set.sums);
      unicode_names_ = std::move(set.unicode_names);
      break;
    }
    if (main_.slice_bytes == 0)
      fail(TANDEM_ERROR_DAMAGED, "no file has an intact main packet, and the other packets do not tell what it said");
    if (main_.slice_bytes > kMostSliceBytes)
      fail(TANDEM_ERROR_UNSUPPORTED, "the set has slices of ", main_.slice_bytes, " bytes; at most ", kMostSliceBytes);
    if (const std::size_t most = std::max(main_.recoverable.size(), main_.others.size()); most > kMostFiles)
      fail(TANDEM_ERROR_TOO_LARGE, "the set has ", most, " files; at most ", kMostFiles);
    for (const Critical *each : all) {
      if (each->set_id != id_ || each->kind != Kind::kept) continue;
      if (const auto kept = parse_kept(each->body)) {
        recovery_percent_ = kept->recovery_percent;
        times_.insert(kept->modified_ns.begin(), kept->modified_ns.end());
      }
    }
  }

  void add_files(Set &set) {
    set.id = id_;
    set.slice_bytes = main_.slice_bytes;
    set.recovery_percent = recovery_percent_;
    std::size_t lost = 0;
    std::set<Digest> ids;
    FileNames names;
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
        const std::string name = file.name;
        const auto unicode = unicode_names_.find(id);
        if (unicode == unicode_names_.end() || set_name(file, unicode->second, names) != 0)
          file.name_error = set_name(file, name, names);
        file.is_recoverable = list == &main_.recoverable;
        const std::uint64_t slices = slices_of(file.bytes, set.slice_bytes);
        if (file.is_recoverable) {
          if (slices > kMostSlices - set.slice_count) {
            fail(TANDEM_ERROR_TOO_LARGE, "the set has more than ", kMostSlices, " slices of ", set.slice_bytes,
                 " bytes");
          }
          file.first_slice = set.slice_count;
          file.slice_count = slices;
          set.slice_count += slices;
        }
        if (const auto sums = sums_.find(id); sums != sums_.end() && sums->second.size() == slices)
          file.sums = sums->second;
        if (const auto time = times_.find(id); time != times_.end()) file.modified_ns = time->second;
        set.files.push_back(std::move(file));
      }
    }
    const std::set<std::string> folders = files_and_folders(names.files);
    for (File &file : set.files)
      if (!file.is_folder && file.name_error == 0 && folders.contains(file.name)) file.name_error = EISDIR;
    std::uint64_t largest = kMostPaddedBytes;
    for (const File &file : set.files) largest = std::max(largest, file.bytes);
    if (lost == 0 && set.slice_bytes - 4 >= largest)
      fail(TANDEM_ERROR_UNSUPPORTED, "slices of ", set.slice_bytes, " bytes are larger than each file");
    if (lost != 0)
      fail(TANDEM_ERROR_NOT_RECOVERABLE, "the descriptions of ", lost, " of ", ids.size(), " files are lost");
  }

 private:
  Digest id_;
  Main main_{};
  std::map<Digest, Description> descriptions_;
  std::map<Digest, std::vector<SliceSum>> sums_;
  std::map<Digest, std::string> unicode_names_;
  std::map<Digest, std::int64_t> times_;
  double recovery_percent_ = 0;
};

// The packets that made the set what it is. Of several that say the same, the first one; of creators some.
std::vector<CriticalPacket> accepted(const std::vector<const Critical *> &all, const Set &set) {
  constexpr int kMain = 0, kOfFile = 1, kKept = 2, kCreator = 3;
  constexpr std::size_t kMostCreators = 4;
  std::map<Digest, std::size_t> files;
  for (std::size_t i = 0; i < set.files.size(); ++i) files.emplace(set.files[i].id, i);
  std::map<std::tuple<int, std::size_t, Kind>, const Critical *> chosen;
  std::size_t creators = 0;
  for (const Critical *each : all) {
    if (each->set_id != set.id) continue;
    Digest id;
    if (each->kind == Kind::main) {
      if (Md5::of(each->body.data(), each->body.size()) == set.id)
        chosen.emplace(std::tuple(kMain, 0, each->kind), each);
    } else if (each->kind == Kind::kept) {
      if (parse_kept(each->body)) chosen.emplace(std::tuple(kKept, 0, each->kind), each);
    } else if (each->kind == Kind::creator) {
      if (creators < kMostCreators) chosen.emplace(std::tuple(kCreator, creators++, each->kind), each);
    } else if (each->body.size() >= id.size()) {
      std::memcpy(id.data(), each->body.data(), id.size());
      const auto file = files.find(id);
      if (file == files.end()) continue;
      const auto sums = each->kind == Kind::sums ? parse_sums(each->body) : std::nullopt;
      if (each->kind == Kind::sums && !(sums && sums->sums == set.files[file->second].sums)) continue;
      if (each->kind == Kind::description && !parse_description(each->body)) continue;
      chosen.emplace(std::tuple(kOfFile, file->second, each->kind), each);
    }
  }
  std::vector<CriticalPacket> packets;
  if (!chosen.contains({kMain, 0, Kind::main})) {
    Main main{set.slice_bytes, {}, {}};
    for (const File &file : set.files) (file.is_recoverable ? main.recoverable : main.others).push_back(file.id);
    packets.push_back({Kind::main, main_body(main), {}});
  }
  for (const auto &[key, each] : chosen)
    packets.push_back({each->kind, each->body, each->files, std::get<0>(key) == kOfFile ? std::get<1>(key) : SIZE_MAX});
  return packets;
}

}  // namespace

std::set<std::string> files_and_folders(const std::set<std::string> &names) {
  std::set<std::string> both;
  for (const std::string &name : names)
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (const auto file = names.find(name.substr(0, slash)); file != names.end()) both.insert(*file);
  return both;
}

bool is_packet_file_name(std::string_view path) { return ends_in(path, ".par2"); }

bool is_par1_file_name(std::string_view path) {
  if (ends_in(path, ".par")) return true;
  if (path.size() < 4) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string_view end = path.substr(path.size() - 4);
  const char letter = static_cast<char>(end[1] | 0x20);
  return end[0] == '.' && (letter == 'p' || letter == 'q') && is_digit(end[2]) && is_digit(end[3]);
}

int set_name(File &file, std::string_view name, FileNames &names) {
  file.is_folder = file.bytes == 0 && name.ends_with('/');
  file.name = name;
  if (!name.starts_with('/')) {
    std::string cleaned;
    for (std::optional<std::string_view> rest = name; rest;)
      if (const std::string_view part = base::cut(rest, "/"); !part.empty() && part != ".")
        cleaned.append(cleaned.empty() ? "" : "/").append(part);
    file.name = cleaned;
  }
  if (!is_safe_name(file.name)) return EPERM;
  if (is_too_long(file.name)) return ENAMETOOLONG;
  if ((file.is_folder ? names.files : names.folders).contains(file.name)) return EEXIST;
  return (file.is_folder ? names.folders : names.files).insert(file.name).second ? 0 : EEXIST;
}

std::string_view base_of(std::string_view path) {
  if (is_par1_file_name(path)) return path.substr(0, path.size() - 4);
  if (!is_packet_file_name(path)) return path;
  path.remove_suffix(5);
  const auto without_number = [](std::string_view text) {
    return text.substr(0, text.find_last_not_of("0123456789") + 1);
  };
  const std::string_view sign = without_number(path);
  if (sign == path || !(sign.ends_with('+') || sign.ends_with('-'))) return path;
  const std::string_view first = sign.substr(0, sign.size() - 1), volume = without_number(first);
  return volume != first && ends_in(volume, ".vol") ? volume.substr(0, volume.size() - 4) : path;
}

// The set that the packet at the beginning of a file is of. Empty: there is none, or errno is not 0.
static std::optional<Digest> set_at_beginning(const base::Descriptor &file) {
  std::array<std::byte, kHeaderBytes> bytes;
  if (!file) return {};
  errno = 0;
  if (base::read_at(file.get(), bytes.data(), bytes.size(), 0) != kHeaderBytes) return {};
  const auto header = parse_header(bytes, UINT64_MAX);
  return header ? std::optional(header->set_id) : std::nullopt;
}

std::vector<std::string> packet_files_of(const std::string &path, const std::vector<std::string> &extra,
                                         bool by_content, std::map<std::string, int> *unreadable_out) {
  std::vector<std::string> paths;
  std::string given = path;
  const auto exists = [](const std::string &file) {
    const bool is_there = status_of(file).has_value();
    if (!is_there && !is_absent(errno)) fail_io("look at", file, errno);
    return is_there;
  };
  if (!is_packet_file_name(path) && exists(path + ".par2"))
    given += ".par2";
  else if (!is_packet_file_name(path) && !is_par1_file_name(path) && exists(path + ".par"))
    given += ".par";
  const auto is_of_set = is_par1_file_name(given) ? is_par1_file_name : is_packet_file_name;
  const base::Folder folder(base::folder_of(given));
  const std::string name = base::name_of(given), base_name(base_of(name));
  if (exists(given)) paths.push_back(given);
  // The first packets name the set, so files that only begin with the same name come last.
  for (const bool is_of_base : {true, false})
    for (const std::string &other : folder.names())
      if (other != name && is_of_set(other) && (base_of(other) == base_name) == is_of_base &&
          (is_of_base || other.starts_with(base_name + ".")))
        paths.push_back(folder.path() == "." && !given.starts_with("./") ? other : folder.path_of(other));
  if (struct stat status; paths.empty() && lstat(given.c_str(), &status) == 0)
    fail(TANDEM_ERROR_IO, given, " is no regular file, and no symbolic link to one");
  if (paths.empty()) fail_io("find a set", path, ENOENT);
  const bool is_par1 = is_par1_file_name(given);
  const auto set_of = [&](const std::string &each, const base::Descriptor &file) {
    const auto id = set_at_beginning(file);
    const int error = id ? 0 : errno;
    struct stat status;
    const bool is_file = error != 0 && lstat(each.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (is_file && unreadable_out != nullptr) unreadable_out->emplace(each, error);
    return id;
  };
  std::ranges::copy_if(extra, std::back_inserter(paths), [&](const std::string &each) {
    return is_of_set(each) || (!is_par1 && set_of(each, open_regular(each)));
  });
  std::optional<Digest> id;
  for (std::size_t i = 0; by_content && !is_par1 && !id && i < paths.size(); ++i)
    id = set_at_beginning(open_regular(paths[i]));
  for (const std::string &other : id ? folder.names() : std::vector<std::string>())
    if (const std::string each = folder.path_of(other);
        name_of_temporary(other).empty() && set_of(each, folder.open_file(other, O_RDONLY)) == id)
      paths.push_back(each);
  std::set<std::pair<dev_t, ino_t>> known;
  std::erase_if(paths, [&](const std::string &each) {
    const auto status = status_of(each);
    return status && !known.insert(status->identity).second;
  });
  return paths;
}

std::uint64_t exponent_window(const Set &set) {
  constexpr std::uint64_t kMostShards = 65536;
  return kMostShards - set.slice_count;
}

std::span<const RecoverySlice> usable_recovery(std::span<const RecoverySlice> all, std::uint64_t window,
                                               std::size_t lost) {
  for (std::size_t i = 0; lost != 0 && i + lost <= all.size(); ++i)
    if (all[i + lost - 1].exponent - all[i].exponent == lost - 1) return all.subspan(i, lost);
  std::span<const RecoverySlice> best;
  for (std::size_t first = 0, end = 0; end < all.size();) {
    ++end;
    while (all[end - 1].exponent - all[first].exponent >= window) ++first;
    if (end - first > best.size()) best = all.subspan(first, end - first);
  }
  return best;
}

Set read_set(const std::vector<std::string> &paths, base::Crew &crew, base::Meter &meter, bool checks_recovery) {
  std::vector<Walk> walks;
  Criticals criticals;
  for (const std::string &path : paths) walks.emplace_back(path, walks.size(), criticals, meter);
  crew.run(
      walks.size(), [&](std::size_t i) { walks[i].run(); }, base::Crew::Tasks::compute);
  check_recovery(walks, paths, checks_recovery, crew, meter);
  Set set;
  std::map<Digest, std::set<std::uint64_t>> sizes;
  for (const Walk &walk : walks)
    for (const Recovery &each : walk.recovery)
      sizes[each.header.set_id].insert(each.header.bytes - kRecoveryPrefixBytes);
  const std::vector<const Critical *> all = criticals.in_order();
  Assembly(all, sizes).add_files(set);
  set.critical = accepted(all, set);
  std::map<std::uint32_t, RecoverySlice> recovery;
  for (std::size_t i = 0; i < walks.size(); ++i) {
    PacketFile file{paths[i],
                    walks[i].bytes(),
                    walks[i].used_bytes(),
                    walks[i].packet_count(set.id),
                    0,
                    walks[i].has_others(set.id),
                    walks[i].status()};
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
