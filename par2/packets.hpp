// SPDX-License-Identifier: Apache-2.0
// The packets of "Parity Volume Set Specification 2.0" (2003): from bytes, which may be hostile, and to bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rounding.hpp"
#include "par2/md5.hpp"

namespace tandem::par2 {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kHeaderBytes = 64;
constexpr std::uint64_t kRecoveryPrefixBytes = kHeaderBytes + 4;   // header and exponent
constexpr std::uint64_t kMostSlices = 32768, kMostFiles = 32768;   // of a set; limits of the field
constexpr std::uint64_t kMostSliceBytes = std::uint64_t{1} << 48;  // so that no product of sizes wraps
// Zeros fill the last slice of each file, and must be hashed: slices beyond this size are at most as long as the
// largest file.
constexpr std::uint64_t kMostPaddedBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 62;
constexpr std::uint32_t kExponents = 65535;
constexpr std::uint64_t kMostCriticalBytes =
    4u << 20;  // of a packet without recovery data: a main packet has 1 MiB at most
constexpr unsigned char kMagic[8] = {'P', 'A', 'R', '2', 0, 'P', 'K', 'T'};
constexpr std::size_t kBeginningBytes = 16384;  // of a file, that have an MD5 of their own

// kept: of sync; other programs skip it.
enum class Kind { main, description, sums, recovery, creator, unicode, kept, other };

struct Header {
  std::uint64_t bytes;  // of the packet, this header included
  Digest md5;           // of what follows the field, see kHashedFrom
  Digest set_id;
  Kind kind;
};
constexpr std::uint64_t kHashedFrom = 32;

// Checks the sizes: a packet has at most left_bytes bytes. Empty if there is no packet here.
std::optional<Header> parse_header(std::span<const std::byte> bytes, std::uint64_t left_bytes);

// Recovery slices of a packet file: exponents that follow each other.
struct Volume {
  std::uint32_t first = 0, count = 0;
};

struct Main {
  std::uint64_t slice_bytes;
  std::vector<Digest> recoverable, others;  // ids of files, in the order of their slices
};
struct SliceSum {
  Digest md5;  // both of the slice, with zeros at the end of the file
  std::uint32_t crc;
  bool operator==(const SliceSum &) const = default;
};
struct Description {
  Digest id, md5, md5_of_beginning;
  std::uint64_t bytes;
  std::string name;  // UTF-8 from most programs, with '/' between folders
};
struct Sums {
  Digest id;
  std::vector<SliceSum> sums;
};

// What sync keeps of a set that it makes: the redundancy that was asked for, and the times of files.
struct Kept {
  double recovery_percent = 0;
  std::vector<std::pair<Digest, std::int64_t>> modified_ns;  // by id
};

// Of bodies. Empty if they are malformed. The sizes in a main packet may be beyond the limits.
std::optional<Main> parse_main(std::span<const std::byte> body);
std::optional<Description> parse_description(std::span<const std::byte> body);
std::optional<Sums> parse_sums(std::span<const std::byte> body);
std::optional<Kept> parse_kept(std::span<const std::byte> body);
std::optional<std::pair<Digest, std::string>> parse_unicode(std::span<const std::byte> body);  // id, name
std::string utf8_of(std::span<const std::byte> utf16);                                         // empty: it is no UTF-16

// Whether the name stays below the set's folder.
bool is_safe_name(std::string_view name);
// As little-endian numbers.
bool is_less(const Digest &a, const Digest &b);
inline std::uint64_t slices_of(std::uint64_t bytes, std::uint64_t slice_bytes) {
  return tandem::base::divide_up(bytes, slice_bytes);
}

Digest id_of(const Description &file);
Bytes main_body(const Main &main);
Bytes description_body(const Description &file);
Bytes sums_body(const Digest &id, std::span<const SliceSum> sums);
// The packet with the name in UTF-16. Empty if the name is ASCII or no UTF-8.
Bytes unicode_body(const Description &file);
Bytes creator_body(std::string_view text);
Bytes kept_body(const Kept &kept);
Bytes packet(Kind kind, const Digest &set_id, std::span<const std::byte> body);

// The first bytes of a recovery packet. What the packet's MD5 covers of them is added to `md5` as the data is.
struct RecoveryPrefix {
  std::byte bytes[kRecoveryPrefixBytes];
};
RecoveryPrefix recovery_prefix(const Digest &set_id, std::uint32_t exponent, std::uint64_t slice_bytes);

}  // namespace tandem::par2
