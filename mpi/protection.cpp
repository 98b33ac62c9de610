// SPDX-License-Identifier: Apache-2.0
#include "mpi/protection.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/rounding.hpp"

namespace tandem::mpi {
namespace {

constexpr char kMagic[8] = {'\x89', 'T', 'N', 'D', 'P', '\r', '\n', '\x1a'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderUnit = 4096, kChecksumAt = 8, kCheckedFrom = 24, kLengthAt = kCheckedFrom + 4,
                      kMostHeaderBytes = std::size_t{256} << 20;
constexpr std::uint32_t kMostMembers = 256;
constexpr std::string_view kEnd = ".tandem-parity", kPendingEnd = ".tandem-parity-tmp";

template <class Number>
void put(std::string &to, Number value) {
  std::byte bytes[sizeof value];
  base::store(bytes, value);
  to.append(reinterpret_cast<const char *>(bytes), sizeof bytes);
}

// Reads the output of put(). Throws DAMAGED if it ends too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  template <class Number>
  Number get() {
    return base::load<Number>(reinterpret_cast<const std::byte *>(take(sizeof(Number)).data()));
  }
  std::string_view take(std::uint64_t count) {
    if (count > left_.size()) fail(TANDEM_ERROR_DAMAGED, "a parity file's header ends too early");
    const std::string_view bytes = left_.substr(0, static_cast<std::size_t>(count));
    left_.remove_prefix(bytes.size());
    return bytes;
  }

 private:
  std::string_view left_;
};

Member read_member(Reader &from) {
  Member member;
  member.rank = from.get<std::uint32_t>();
  const auto file_count = from.get<std::uint32_t>(), hash_count = from.get<std::uint32_t>();
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < file_count; ++i) {
    DataFile file;
    file.bytes = from.get<std::uint64_t>();
    file.mode = from.get<std::uint32_t>();
    file.path = from.take(from.get<std::uint32_t>());
    if (file.path.empty() || file.path.find('\0') != std::string::npos || file.bytes > INT64_MAX - total)
      fail(TANDEM_ERROR_DAMAGED, "a parity file's header has an impossible file");
    total += file.bytes;
    member.files.push_back(std::move(file));
  }
  for (std::uint32_t i = 0; i < hash_count; ++i) {
    Hash hash;
    std::memcpy(hash.data(), from.take(hash.size()).data(), hash.size());
    member.hashes.push_back(hash);
  }
  return member;
}

Hash hash_of(std::string_view bytes) { return base::printed_order(base::hash128(bytes.data(), bytes.size())); }

std::optional<SetId> parse_id(std::string_view text) {
  SetId id;
  return base::parse_hexadecimal(text, id) ? std::optional(id) : std::nullopt;
}

// header: checked with its checksum.
Protection parse_protection(std::string_view header, const std::string &path) {
  Reader from(header.substr(kLengthAt + sizeof(std::uint32_t)));
  Protection found;
  std::memcpy(found.set_id.data(), from.take(found.set_id.size()).data(), found.set_id.size());
  found.sequence = from.get<std::uint64_t>();
  found.layout.k = from.get<std::uint32_t>();
  found.layout.m = from.get<std::uint32_t>();
  found.matrix = static_cast<std::int32_t>(from.get<std::uint32_t>());
  found.group_count = from.get<std::uint32_t>();
  found.group = from.get<std::uint32_t>();
  found.member = from.get<std::uint32_t>();
  found.segment_bytes = from.get<std::uint64_t>();
  const Layout &layout = found.layout;
  const bool possible = layout.k >= 1 && layout.m >= 1 && layout.k <= kMostMembers && layout.m <= kMostMembers &&
                        found.group < found.group_count && found.member < layout.size() && found.segment_bytes >= 1 &&
                        found.segment_bytes <= INT64_MAX / kMostMembers;
  for (std::uint32_t i = 0; possible && i < layout.size(); ++i) {
    found.members.push_back(read_member(from));
    if (found.members.back().hashes.size() != layout.size() ||
        found.members.back().data_bytes() > layout.k * found.segment_bytes)
      fail(TANDEM_ERROR_DAMAGED, path, " has an impossible header");
  }
  if (!possible) fail(TANDEM_ERROR_DAMAGED, path, " has an impossible header");
  return found;
}

}  // namespace

std::uint32_t Layout::segment_of(std::uint32_t member, std::uint32_t stripe) const {
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < stripe; ++i) before += has_parity(member, i) ? 0 : 1;
  return before;
}

std::uint32_t Layout::place_of(std::uint32_t member, std::uint32_t stripe) const {
  if (has_parity(member, stripe)) return k + parity_of(member, stripe);
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < member; ++i) before += has_parity(i, stripe) ? 0 : 1;
  return before;
}

std::uint64_t Member::data_bytes() const {
  std::uint64_t bytes = 0;
  for (const DataFile &file : files) bytes += file.bytes;
  return bytes;
}

std::string Member::serialized() const {
  std::string bytes;
  put(bytes, rank);
  put(bytes, static_cast<std::uint32_t>(files.size()));
  put(bytes, static_cast<std::uint32_t>(hashes.size()));
  for (const DataFile &file : files) {
    put(bytes, file.bytes);
    put(bytes, file.mode);
    put(bytes, static_cast<std::uint32_t>(file.path.size()));
    bytes += file.path;
  }
  for (const Hash &hash : hashes) bytes.append(reinterpret_cast<const char *>(hash.data()), hash.size());
  return bytes;
}

Member parse_member(const std::string &bytes) {
  Reader reader(bytes);
  return read_member(reader);
}

std::string Protection::serialized() const {
  std::string bytes(kMagic, sizeof kMagic);
  bytes.append(kCheckedFrom - kChecksumAt, '\0');
  put(bytes, kVersion);
  put(bytes, std::uint32_t{0});
  bytes.append(reinterpret_cast<const char *>(set_id.data()), set_id.size());
  put(bytes, sequence);
  for (const std::uint32_t number :
       {layout.k, layout.m, static_cast<std::uint32_t>(matrix), group_count, group, member})
    put(bytes, number);
  put(bytes, segment_bytes);
  for (const Member &each : members) bytes += each.serialized();
  bytes.resize(base::round_up(bytes.size(), kHeaderUnit), '\0');
  if (bytes.size() > kMostHeaderBytes)
    fail(TANDEM_ERROR_TOO_LARGE, "the group's list of files takes ", bytes.size(), " bytes; at most ",
         kMostHeaderBytes);
  std::string length;
  put(length, static_cast<std::uint32_t>(bytes.size()));
  bytes.replace(kLengthAt, length.size(), length);
  const Hash hash = hash_of(std::string_view(bytes).substr(kCheckedFrom));
  std::memcpy(bytes.data() + kChecksumAt, hash.data(), hash.size());
  return bytes;
}

Protection read_protection(const std::string &path) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!descriptor) fail_io("open", path, errno);
  std::string bytes(kHeaderUnit, '\0');
  const auto read = [&](std::size_t from) {
    const auto part = std::as_writable_bytes(std::span(bytes)).subspan(from);
    if (!read_at(descriptor.get(), path, part, from)) fail(TANDEM_ERROR_DAMAGED, path, " is truncated");
  };
  read(0);
  if (bytes.compare(0, sizeof kMagic, kMagic, sizeof kMagic) != 0)
    fail(TANDEM_ERROR_DAMAGED, path, " is no parity file");
  Reader lengths(std::string_view(bytes).substr(kCheckedFrom));
  const auto version = lengths.get<std::uint32_t>();
  const std::size_t header_bytes = lengths.get<std::uint32_t>();
  if (header_bytes < kHeaderUnit || header_bytes % kHeaderUnit != 0 || header_bytes > kMostHeaderBytes)
    fail(TANDEM_ERROR_DAMAGED, path, " has a damaged header");
  struct stat status;
  if (fstat(descriptor.get(), &status) != 0) fail_io("look at", path, errno);
  // The paths in it decide where recover writes.
  if (status.st_uid != geteuid()) fail(TANDEM_ERROR_DAMAGED, path, " belongs to another user");
  if (static_cast<std::uint64_t>(status.st_size) < header_bytes) fail(TANDEM_ERROR_DAMAGED, path, " is truncated");
  bytes.resize(header_bytes);
  if (header_bytes > kHeaderUnit) read(kHeaderUnit);
  const Hash hash = hash_of(std::string_view(bytes).substr(kCheckedFrom));
  if (std::memcmp(hash.data(), bytes.data() + kChecksumAt, hash.size()) != 0)
    fail(TANDEM_ERROR_DAMAGED, path, " has a damaged header");
  if (version != kVersion)
    fail(TANDEM_ERROR_UNSUPPORTED, path, " has version ", version, "; this library reads ", kVersion);
  return parse_protection(bytes, path);
}

Protection take_protection(std::string_view &bytes) {
  const std::string_view header = bytes.substr(0, Reader(bytes.substr(kLengthAt)).get<std::uint32_t>());
  bytes.remove_prefix(header.size());
  return parse_protection(header, "another rank");
}

std::string protection_name(const std::string &name, std::uint32_t rank, const SetId &set_id) {
  return text(name, ".", base::digits(rank, 10, 5), ".", base::hexadecimal(set_id), kEnd);
}

std::string pending_protection_name(const std::string &name, std::uint32_t rank, const SetId &set_id) {
  return text(".", name, ".", base::digits(rank, 10, 5), ".", base::hexadecimal(set_id), kPendingEnd);
}

std::vector<FoundFile> find_protections(const std::string &folder, const std::string &name) {
  std::vector<FoundFile> found;
  struct stat status;
  if (stat(folder.c_str(), &status) != 0 && errno == ENOENT) return found;
  for (const std::string &whole : Folder(folder).names()) {
    std::string_view rest = whole;
    const bool pending = rest.ends_with(kPendingEnd);
    if (!pending && !rest.ends_with(kEnd)) continue;
    rest.remove_suffix(pending ? kPendingEnd.size() : kEnd.size());
    const std::string start = (pending ? "." : "") + name + ".";
    if (!rest.starts_with(start)) continue;
    std::optional<std::string_view> id_text = rest.substr(start.size());
    const std::optional<std::uint32_t> rank = base::number_in<std::uint32_t>(base::cut(id_text, "."));
    const std::optional<SetId> id = id_text ? parse_id(*id_text) : std::nullopt;
    if (!rank || !id) continue;
    if (whole != (pending ? pending_protection_name(name, *rank, *id) : protection_name(name, *rank, *id))) continue;
    found.push_back({folder + "/" + whole, *rank, *id, pending});
  }
  return found;
}

void check_protection_name(const char *name) {
  constexpr std::size_t kMost = 128;
  if (name == nullptr) fail(TANDEM_ERROR_INVALID_ARGUMENT, "name is NULL");
  const std::string_view text = name;
  if (text.empty() || text.size() > kMost || text.find('/') != std::string_view::npos)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "\"", text, "\" cannot be a name: it is empty, has a / or more than ", kMost,
         " bytes");
}

std::uint32_t checked_piece_bytes(std::uint32_t given) {
  constexpr std::uint32_t kMostBytes = 64u << 20;
  if (given % 64 != 0 || given > kMostBytes)
    fail(TANDEM_ERROR_INVALID_ARGUMENT, "piece_bytes is ", given, "; multiples of 64 up to ", kMostBytes,
         " are possible");
  return given != 0 ? given : 1u << 20;
}

void make_folders(const std::string &folder, bool no_sync) {
  std::vector<std::string> made;
  base::make_folder(folder, made);
  for (const std::string &each : made)
    if (!no_sync) Folder(folder_of(each)).sync();
}

}  // namespace tandem::mpi
