// SPDX-License-Identifier: Apache-2.0
// The bytes of a shard file (docs/format.md): geometry, the records at both ends, the checksum of a block. Pure
// functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/rounding.hpp"
#include "tandem/files.h"

namespace tandem::files {

using namespace base;

constexpr std::uint32_t kFormatVersion = 2;      // of sets that need nothing newer
constexpr std::uint32_t kWideFormatVersion = 3;  // of sets of more than kNarrowShardCount shards
constexpr std::size_t kRecordBytes = 4096;       // a page: blocks of whole pages stay on page boundaries
constexpr std::uint32_t kCheckBytes = 16;        // at the end of each block
constexpr std::size_t kHashBytes = 16;           // of a payload, as the digest is made of them
constexpr std::uint32_t kBlockGranularityBytes = 64;
constexpr std::uint32_t kMinBlockBytes = 64;
constexpr std::uint32_t kMaxBlockBytes = 16u << 20;
constexpr std::uint64_t kMaxStripeBytes = 256u << 20;               // (k + m) * block_bytes: what one thread must hold
constexpr std::uint64_t kMaxContentBytes = std::uint64_t{1} << 60;  // keeps every product below 2^63
constexpr std::uint32_t kMaxShardCount = TANDEM_FILES_MAX_SHARDS;
constexpr std::uint32_t kNarrowShardCount = 256;
constexpr std::uint32_t kFieldGf16 = 1;             // enum tandem_field_value
constexpr std::uint32_t kModeUnknown = UINT32_MAX;  // above 0777, as a PendingFile expects
constexpr std::size_t kMaxReplacedCount = 233;      // SetHeader::replaced; they fill the record

using SetId = std::array<std::uint8_t, 16>;

// The fields that all shard files of a set have in common.
struct SetHeader {
  SetId set_id{};
  std::uint32_t k = 0, m = 0;
  std::int32_t matrix = 0;
  std::uint32_t field = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t mode = kModeUnknown;
  std::uint32_t folder_count = 0;  // encode put shard i into folder i % folder_count; 0: in another way
  std::uint64_t content_bytes = 0;
  Hash128 digest;               // of the content; see ContentDigest
  std::string name;             // encode called shard III <name>.III.tandem; "": an older Tandem made the set
  std::vector<SetId> replaced;  // the sets that encode replaced, and those that these replaced
  bool operator==(const SetHeader &) const = default;

  bool lists(const SetId &id) const { return std::ranges::find(replaced, id) != replaced.end(); }
  std::uint32_t shard_count() const { return k + m; }
  std::uint64_t payload_bytes() const { return block_bytes - kCheckBytes; }
  std::uint64_t stripe_data_bytes() const { return k * payload_bytes(); }
  std::uint64_t stripe_count() const {
    return content_bytes / stripe_data_bytes() + (content_bytes % stripe_data_bytes() != 0 ? 1 : 0);
  }
  // Content bytes of a stripe; all but the last are full.
  std::uint64_t content_bytes_of(std::uint64_t stripe) const {
    const std::uint64_t left = content_bytes - stripe * stripe_data_bytes();
    return left < stripe_data_bytes() ? left : stripe_data_bytes();
  }
  std::uint64_t content_bytes_of(std::uint64_t first, std::uint64_t count) const {  // of some stripes
    return count == 0 ? 0 : (count - 1) * stripe_data_bytes() + content_bytes_of(first + count - 1);
  }
  // Payload of each block of a stripe: the content in k equal parts of whole elements, the last ones padded with zeros.
  std::uint64_t payload_bytes_of(std::uint64_t stripe) const { return payload_bytes_for(content_bytes_of(stripe)); }
  std::uint64_t payload_bytes_for(std::uint64_t bytes_of_stripe) const {
    const std::uint64_t bytes = base::divide_up(bytes_of_stripe, k);
    return field == kFieldGf16 ? bytes + bytes % 2 : bytes;
  }
  // The block is known without a file: it has no content, only the zeros behind it.
  bool is_padding(std::uint32_t shard, std::uint64_t stripe) const {
    return shard < k && shard * payload_bytes_of(stripe) >= content_bytes_of(stripe);
  }
  // Whether all blocks of the shard are padding. Only a last stripe has such blocks.
  bool is_padding(std::uint32_t shard) const { return stripe_count() == 1 && is_padding(shard, 0); }
  std::uint64_t block_offset(std::uint64_t stripe) const { return kRecordBytes + stripe * block_bytes; }
  std::uint64_t shard_file_bytes() const;
};

// Whether no row of the matrix preset depends on m. Then a parity shard is the same for every m, and a set can be
// resized.
bool can_be_resized(std::int32_t matrix);
// Whether records with these fields are of one set. They may differ in m and folder_count, which a resize changes.
bool describe_one_set(const SetHeader &one, const SetHeader &other);

// Why a geometry is outside the format's limits; nothing if it is inside.
std::optional<std::string> out_of_limits(const SetHeader &header);

enum class RecordEnd : std::uint32_t { start = 1, end = 2 };

struct Record {
  SetHeader set;
  std::uint32_t shard_index = 0;
  RecordEnd end = RecordEnd::start;
  bool operator==(const Record &) const = default;
};

void write_record(const Record &record, std::span<std::byte, kRecordBytes> bytes_out);

enum class ParseResult {  // ordered: of a file's two records, the higher result is reported
  not_a_record,           // no magic number
  record,
  damaged,          // magic number, wrong checksum
  out_of_limits,    // intact, but with numbers that no writer makes
  unknown_version,  // intact, but of an unknown version
};

// For bytes that are an intact record, also one of another version.
std::optional<std::uint32_t> record_version(std::span<const std::byte, kRecordBytes> bytes);

// Trusts nothing: record_out is written only for ParseResult::record, and then within limits. why_out, unless it is
// NULL, gets a clause with numbers for out_of_limits and unknown_version.
ParseResult parse_record(std::span<const std::byte, kRecordBytes> bytes, Record *record_out,
                         std::string *why_out = nullptr);

// The checksum of a block. It binds the payload to its set, shard and place.
Hash128 block_check(const SetId &set_id, std::uint32_t shard_index, std::uint64_t block_number,
                    const std::byte *payload, std::uint64_t payload_bytes);

// The same, from a known XXH3-128 of the payload.
Hash128 block_check(const SetId &set_id, std::uint32_t shard_index, std::uint64_t block_number,
                    const Hash128 &payload_hash, std::uint64_t payload_bytes);

// The digest of the content: XXH3-128 of the data payloads' XXH3-128, stripe by stripe, shards 0 to k-1 of each, and of
// the content's length. The length is needed because padding is hashed like content.
class ContentDigest {
 public:
  void add(std::span<const Hash128> payload_hashes);
  Hash128 value(std::uint64_t content_bytes) const;

 private:
  StreamHash hash_;
};

// A hash as 16 bytes: the checksum behind a payload, a payload's hash in the digest.
void write_check(const Hash128 &hash, std::byte *bytes_out);
Hash128 read_check(const std::byte *bytes);

// The default for block_bytes.
std::uint32_t default_block_bytes(std::uint32_t shard_count);

}  // namespace tandem::files
