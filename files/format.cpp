// SPDX-License-Identifier: Apache-2.0
#include "files/format.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "base/text.hpp"
#include "files/names.hpp"

namespace tandem::files {
namespace {

// Like PNG's: a byte above 127, so that it does not look like text, and line ends that show a mangled transfer.
constexpr unsigned char kMagic[8] = {0x89, 'T', 'N', 'D', 'M', '\r', '\n', 0x1a};

// Offsets in a record; docs/format.md section 2.
enum : std::size_t {
  kAtMagic = 0,
  kAtVersion = 8,
  kAtEnd = 12,
  kAtSetId = 16,
  kAtK = 32,
  kAtM = 36,
  kAtMatrix = 40,
  kAtField = 44,
  kAtShardIndex = 48,
  kAtBlockBytes = 52,
  kAtMode = 56,
  kAtFolderCount = 60,
  kAtContentBytes = 64,
  kAtDigest = 72,
  kAtNameBytes = 88,
  kAtReplacedCount = 92,
  kAtName = 96,
  kAtReplaced = 352,
  kAtZeros = kAtReplaced + kMaxReplacedCount * sizeof(SetId),
  kAtCheck = kRecordBytes - 8
};
static_assert(kAtZeros <= kAtCheck);

// One number for each kind of set: a narrow set in a record of the wide version is refused.
std::uint32_t version_of(const SetHeader &header) {
  return header.shard_count() > kNarrowShardCount ? kWideFormatVersion : kFormatVersion;
}

std::optional<std::string> out_of_limits(const Record &record, std::uint32_t end, std::uint32_t version) {
  if (auto why = out_of_limits(record.set)) return why;
  const std::uint32_t shard_count = record.set.shard_count();
  if (version != version_of(record.set)) return base::text(shard_count, " shards in a record of version ", version);
  if (record.shard_index >= shard_count) return base::text("shard ", record.shard_index, " of ", shard_count);
  if (end != static_cast<std::uint32_t>(RecordEnd::start) && end != static_cast<std::uint32_t>(RecordEnd::end))
    return base::text("end is ", end);
  return std::nullopt;
}

}  // namespace

std::uint64_t SetHeader::shard_file_bytes() const {
  std::uint64_t bytes = 2 * kRecordBytes;
  const std::uint64_t stripes = stripe_count();
  if (stripes != 0) bytes += (stripes - 1) * block_bytes + payload_bytes_of(stripes - 1) + kCheckBytes;
  return bytes;
}

bool can_be_resized(std::int32_t matrix) {
  constexpr std::int32_t kMatrices[] = {TANDEM_MATRIX_ISAL_CAUCHY,
                                        TANDEM_MATRIX_ISAL_VANDERMONDE,
                                        TANDEM_MATRIX_BACKBLAZE,
                                        TANDEM_MATRIX_ZFEC,
                                        TANDEM_MATRIX_LIBERASURECODE_ISAL_VAND_INV,
                                        TANDEM_MATRIX_RAID6,
                                        TANDEM_MATRIX_ZFS_RAIDZ,
                                        TANDEM_MATRIX_SNAPRAID_CAUCHY,
                                        TANDEM_MATRIX_SNAPRAID_VANDERMONDE,
                                        TANDEM_MATRIX_PAR1,
                                        TANDEM_MATRIX_PAR2,
                                        TANDEM_MATRIX_LIBERASURECODE_RS_VAND};
  return std::ranges::find(kMatrices, matrix) != std::end(kMatrices);
}

bool describe_one_set(const SetHeader &one, const SetHeader &other) {
  if (!can_be_resized(one.matrix)) return one == other;
  SetHeader resized = other;
  resized.m = one.m;
  resized.folder_count = one.folder_count;
  return one == resized;
}

std::optional<std::string> out_of_limits(const SetHeader &header) {
  if (header.k == 0 || header.k > kMaxShardCount || header.m > kMaxShardCount - header.k)
    return base::text("k = ", header.k, " and m = ", header.m, "; k is at least 1 and k + m at most ", kMaxShardCount);
  if (header.block_bytes < kMinBlockBytes || header.block_bytes > kMaxBlockBytes ||
      header.block_bytes % kBlockGranularityBytes != 0)
    return base::text("block_bytes is ", header.block_bytes, "; it is a multiple of ", kBlockGranularityBytes, " from ",
                      kMinBlockBytes, " to ", kMaxBlockBytes);
  const std::uint64_t stripe_bytes = std::uint64_t{header.shard_count()} * header.block_bytes;
  if (stripe_bytes > kMaxStripeBytes)
    return base::text(header.shard_count(), " shards of ", header.block_bytes, " bytes a block are ", stripe_bytes,
                      " bytes a stripe; at most ", kMaxStripeBytes, " are possible");
  if (header.content_bytes > kMaxContentBytes)
    return base::text("the content has ", header.content_bytes, " bytes; at most ", kMaxContentBytes, " are possible");
  if (header.mode != kModeUnknown && header.mode > 0777)
    return base::text("mode is ", base::digits(header.mode, 8), " (octal)");
  if (header.folder_count > header.shard_count())
    return base::text(header.shard_count(), " shards lie in ", header.folder_count, " folders");
  if (!header.name.empty() && !is_set_name(header.name, header.shard_count())) return "its name is no name of a file";
  return std::nullopt;
}

void write_record(const Record &record, std::span<std::byte, kRecordBytes> bytes_out) {
  std::byte *at = bytes_out.data();
  std::memset(at, 0, kRecordBytes);
  std::memcpy(at + kAtMagic, kMagic, sizeof kMagic);
  store(at + kAtVersion, version_of(record.set));
  store(at + kAtEnd, static_cast<std::uint32_t>(record.end));
  std::memcpy(at + kAtSetId, record.set.set_id.data(), record.set.set_id.size());
  store(at + kAtK, record.set.k);
  store(at + kAtM, record.set.m);
  store(at + kAtMatrix, record.set.matrix);
  store(at + kAtField, record.set.field);
  store(at + kAtShardIndex, record.shard_index);
  store(at + kAtBlockBytes, record.set.block_bytes);
  store(at + kAtMode, record.set.mode);
  store(at + kAtFolderCount, record.set.folder_count);
  store(at + kAtContentBytes, record.set.content_bytes);
  write_check(record.set.digest, at + kAtDigest);
  store(at + kAtNameBytes, static_cast<std::uint32_t>(record.set.name.size()));
  store(at + kAtReplacedCount, static_cast<std::uint32_t>(record.set.replaced.size()));
  std::memcpy(at + kAtName, record.set.name.data(), record.set.name.size());
  for (std::size_t i = 0; i < record.set.replaced.size(); ++i)
    std::memcpy(at + kAtReplaced + i * sizeof(SetId), record.set.replaced[i].data(), sizeof(SetId));
  store(at + kAtCheck, hash64(at, kAtCheck));
}

std::optional<std::uint32_t> record_version(std::span<const std::byte, kRecordBytes> bytes) {
  const std::byte *at = bytes.data();
  if (std::memcmp(at + kAtMagic, kMagic, sizeof kMagic) != 0) return {};
  if (load<std::uint64_t>(at + kAtCheck) != hash64(at, kAtCheck)) return {};
  return load<std::uint32_t>(at + kAtVersion);
}

ParseResult parse_record(std::span<const std::byte, kRecordBytes> bytes, Record *record_out, std::string *why_out) {
  const std::byte *at = bytes.data();
  if (std::memcmp(at + kAtMagic, kMagic, sizeof kMagic) != 0) return ParseResult::not_a_record;
  const std::optional<std::uint32_t> version = record_version(bytes);
  if (!version) return ParseResult::damaged;
  std::string ignored;
  std::string &why = why_out != nullptr ? *why_out : ignored;
  if (version != kFormatVersion && version != kWideFormatVersion) {
    why = base::text("a shard file of version ", *version, ", this Tandem reads versions ", kFormatVersion, " and ",
                     kWideFormatVersion, "; use the Tandem that made it");
    return ParseResult::unknown_version;
  }

  Record record;
  const auto end = load<std::uint32_t>(at + kAtEnd);
  std::memcpy(record.set.set_id.data(), at + kAtSetId, record.set.set_id.size());
  record.set.k = load<std::uint32_t>(at + kAtK);
  record.set.m = load<std::uint32_t>(at + kAtM);
  record.set.matrix = load<std::int32_t>(at + kAtMatrix);
  record.set.field = load<std::uint32_t>(at + kAtField);
  record.shard_index = load<std::uint32_t>(at + kAtShardIndex);
  record.set.block_bytes = load<std::uint32_t>(at + kAtBlockBytes);
  record.set.mode = load<std::uint32_t>(at + kAtMode);
  record.set.folder_count = load<std::uint32_t>(at + kAtFolderCount);
  record.set.content_bytes = load<std::uint64_t>(at + kAtContentBytes);
  record.set.digest = read_check(at + kAtDigest);
  const auto name_bytes = load<std::uint32_t>(at + kAtNameBytes), replaced = load<std::uint32_t>(at + kAtReplacedCount);
  std::optional<std::string> limit;
  if (name_bytes > kAtReplaced - kAtName || replaced > kMaxReplacedCount) {
    limit = base::text("a name of ", name_bytes, " bytes, and ", replaced, " sets that it replaced");
  } else {
    record.set.name.assign(reinterpret_cast<const char *>(at + kAtName), name_bytes);
    record.set.replaced.resize(replaced);
    for (std::size_t i = 0; i < replaced; ++i)
      std::memcpy(record.set.replaced[i].data(), at + kAtReplaced + i * sizeof(SetId), sizeof(SetId));
    limit = out_of_limits(record, end, *version);
  }
  if (limit) {
    why = "its header is out of the format's limits: " + *limit;
    return ParseResult::out_of_limits;
  }
  record.end = static_cast<RecordEnd>(end);
  // The rest is for later versions that this one can still read. Versions that it cannot read have another number.
  *record_out = record;
  return ParseResult::record;
}

Hash128 block_check(const SetId &set_id, std::uint32_t shard_index, std::uint64_t block_number,
                    const std::byte *payload, std::uint64_t payload_bytes) {
  return block_check(set_id, shard_index, block_number, hash128(payload, payload_bytes), payload_bytes);
}

Hash128 block_check(const SetId &set_id, std::uint32_t shard_index, std::uint64_t block_number,
                    const Hash128 &payload_hash, std::uint64_t payload_bytes) {
  std::byte bound[56];
  std::memcpy(bound, set_id.data(), set_id.size());
  store(bound + 16, shard_index);
  store(bound + 20, std::uint32_t{0});
  store(bound + 24, block_number);
  store(bound + 32, payload_bytes);
  write_check(payload_hash, bound + 40);
  return hash128(bound, sizeof bound);
}

void ContentDigest::add(std::span<const Hash128> payload_hashes) {
  std::byte bytes[kHashBytes];
  for (const Hash128 &hash : payload_hashes) {
    write_check(hash, bytes);
    hash_.update(bytes, sizeof bytes);
  }
}

Hash128 ContentDigest::value(std::uint64_t content_bytes) const {
  std::byte bytes[8];
  store(bytes, content_bytes);
  StreamHash hash = hash_;
  hash.update(bytes, sizeof bytes);
  return hash.value();
}

void write_check(const Hash128 &hash, std::byte *bytes_out) {
  store(bytes_out, hash.low);
  store(bytes_out + 8, hash.high);
}

Hash128 read_check(const std::byte *bytes) { return {load<std::uint64_t>(bytes), load<std::uint64_t>(bytes + 8)}; }

std::uint32_t default_block_bytes(std::uint32_t shard_count) {
  // A stripe of about 1 MiB is read, hashed, coded and written while it is in the L2 cache.
  constexpr std::uint32_t kStripeBytes = 1u << 20;
  return std::bit_floor(std::max(kStripeBytes / shard_count, std::uint32_t{kRecordBytes}));
}

}  // namespace tandem::files
