// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the parsers of bytes and names from a disk: the record of a shard file, the record of a commit, the names
// of temporaries. In memory only. The checksum is corrected first, unless the input says no, so that the code behind
// its check runs. The oracle is a second, independent statement of the limits of docs/format.md.
#include <string>

#include "files/commit.hpp"
#include "files/format.hpp"
#include "tests/fuzz/input.hpp"

namespace tandem::files {
namespace {

using test::FuzzInput;
using test::wrong;

// Bytes over `at` from the input, then, if `sum`, the checksum in the last 8.
void edit_and_sum(FuzzInput &input, std::byte *at, std::size_t byte_count, bool sum) {
  while (input.left() >= 3) {
    const std::size_t offset = input.number<std::uint16_t>() % byte_count;
    at[offset] = static_cast<std::byte>(input.byte());
  }
  if (sum) store(at + byte_count - 8, hash64(at, byte_count - 8));
}

void check_geometry(const SetHeader &set) {
  __extension__ using Wide = unsigned __int128;  // so that nothing here can overflow
  const Wide payload = set.block_bytes - 16, stripe = payload * set.k, content = set.content_bytes;
  const Wide stripes = (content + stripe - 1) / stripe;
  if (set.stripe_count() != stripes) wrong("stripe_count");
  Wide file = 8192;
  if (stripes != 0) {
    const Wide last = content - (stripes - 1) * stripe, last_payload = (last + set.k - 1) / set.k;
    file += (stripes - 1) * set.block_bytes + last_payload + 16;
    const std::uint64_t number = set.stripe_count() - 1;
    if (set.payload_bytes_of(number) != last_payload || last_payload == 0 || last_payload > payload)
      wrong("payload of the last stripe");
    if (set.content_bytes_of(number) != last) wrong("content of the last stripe");
    if (number > 0 && set.payload_bytes_of(number - 1) != payload) wrong("payload of a full stripe");
    if (set.block_offset(number) != 4096 + (stripes - 1) * set.block_bytes) wrong("block_offset");
  }
  if (set.shard_file_bytes() != file || file >> 63 != 0) wrong("shard_file_bytes");
}

void fuzz_record(FuzzInput &input, bool sum) {
  Record written;
  written.set.k = input.number<std::uint16_t>();
  written.set.m = input.number<std::uint16_t>();
  written.set.matrix = input.byte();
  written.set.block_bytes = input.number<std::uint32_t>();
  written.set.mode = input.number<std::uint32_t>();
  written.set.content_bytes = input.number<std::uint64_t>();
  written.shard_index = input.number<std::uint16_t>();
  written.end = static_cast<RecordEnd>(input.byte());
  input.take(written.set.set_id.data(), 16);
  written.set.folder_count = input.byte();
  if (const unsigned flags = input.byte(); flags & 1) {  // sizes that writers use, so that more gets past the limits
    written.set.k = written.set.k % (flags & 8 ? 4096 : 256) + 1;
    written.set.m %= 8;
    written.set.block_bytes = written.set.block_bytes % 4096 / 64 * 64;
    written.set.mode = flags & 2 ? kModeUnknown : written.set.mode & 0777;
    written.end = flags & 4 ? RecordEnd::start : RecordEnd::end;
  }
  std::array<std::byte, kRecordBytes> bytes;
  write_record(written, bytes);
  edit_and_sum(input, bytes.data(), bytes.size(), sum);

  const std::byte *at = bytes.data();
  const auto word = [at](std::size_t offset) { return std::uint64_t{load<std::uint32_t>(at + offset)}; };
  constexpr unsigned char magic[] = {0x89, 'T', 'N', 'D', 'M', '\r', '\n', 0x1a};
  const std::uint64_t k = word(32), m = word(36), index = word(48), block = word(52), mode = word(56),
                      folders = word(60), end = word(12);
  const bool has_magic = std::memcmp(at, magic, sizeof magic) == 0;
  const std::uint64_t version = word(8);
  const bool in_limits = (end == 1 || end == 2) && k >= 1 && k + m <= 4096 && (k + m > 256) == (version == 3) &&
                         index < k + m && block >= 64 && block <= 1u << 24 && block % 64 == 0 &&
                         (k + m) * block <= 1u << 28 && (mode <= 0777 || mode == UINT32_MAX) && folders <= k + m &&
                         load<std::uint64_t>(at + 64) <= std::uint64_t{1} << 60;

  Record record;
  const Record untouched = record;
  const ParseResult result = parse_record(bytes, &record);
  if (result != ParseResult::record && !(record == untouched)) wrong("refused and written to");
  if (!has_magic) return result == ParseResult::not_a_record ? void() : wrong("a record without magic number");
  if (!sum && load<std::uint64_t>(at + 4088) != hash64(at, 4088))
    return result == ParseResult::damaged ? void() : wrong("a record with a wrong checksum");
  if (record_version(bytes) != word(8)) wrong("the version");
  if (version != 2 && version != 3)
    return result == ParseResult::unknown_version ? void() : wrong("a record of another version");
  if ((result == ParseResult::record) != in_limits) wrong("limits");
  if (!in_limits) return;
  check_geometry(record.set);
  std::array<std::byte, kRecordBytes> again;
  write_record(record, again);
  if (std::memcmp(again.data(), at, 88) != 0) wrong("a record that reads back differently");
}

void fuzz_commit_record(FuzzInput &input, bool sum, bool wide) {
  CommitRecord written;
  written.shard_count = input.number<std::uint16_t>() % (wide ? 4200 : 300);
  written.folder_count = input.byte();
  written.folder = input.byte();
  written.force = input.byte() & 1;
  input.take(written.set_id.data(), 16);
  written.name.resize(input.byte());
  input.take(written.name.data(), written.name.size());
  const std::uint8_t spread = input.byte();
  for (std::size_t i = 0; i < written.shard_count; ++i)
    written.folder_of.push_back(static_cast<std::uint16_t>(spread == 0 ? 0 : i % spread));
  for (unsigned i = input.byte() % 8; i != 0; --i) written.stale.set(input.byte() * (wide ? 16u : 1u));
  std::vector<std::byte> bytes = commit_record_bytes(written);
  for (unsigned i = wide ? input.byte() % 4 : 0; i != 0; --i)
    bytes[1024 + input.number<std::uint16_t>() % 9216] = static_cast<std::byte>(input.byte());
  if (sum) store(bytes.data() + 896, hash64(bytes.data() + 1024, 9216));
  edit_and_sum(input, bytes.data(), 1024, sum);

  CommitRecord record;
  if (!parse_commit_record(bytes, &record)) return;
  if (!sum && load<std::uint64_t>(bytes.data() + 1016) != hash64(bytes.data(), 1016))
    wrong("a commit record with a wrong checksum");
  if (load<std::uint64_t>(bytes.data() + 896) != hash64(bytes.data() + 1024, 9216))
    wrong("a commit record with a wrong checksum of its lists");
  if (load<std::uint32_t>(bytes.data() + 8) != 3) wrong("version of a commit record");
  if (record.shard_count == 0 || record.shard_count > 4096 || record.folder_count == 0 ||
      record.folder_count > record.shard_count || record.folder >= record.folder_count)
    wrong("counts of a commit record");
  if (record.given_up.size() > 16) wrong("more given up than a record can hold");
  for (std::uint32_t i = 0; i < record.shard_count; ++i)
    if (record.folder_of[i] >= record.folder_count) wrong("a shard in no folder");
  for (const std::uint32_t index : {0u, record.shard_count - 1}) {  // what it leads to are plain names
    const std::string name = shard_file_name(record.name, index);
    if (record.name.empty() || name.size() > 255 || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      wrong("a name that is none");
    const auto parsed = parse_shard_file_name(name);
    if (!parsed || parsed->first != record.name || parsed->second != index) wrong("a shard file's name");
  }
  CommitRecord read_again;
  if (!parse_commit_record(commit_record_bytes(record), &read_again) || !(read_again == record))
    wrong("a commit record that changes");
}

void fuzz_names(FuzzInput &input) {
  std::string name;
  if (const unsigned flags = input.byte(); flags & 1) {
    OwnName own{static_cast<OwnKind>(flags >> 1 & 3), {}, input.byte() * (flags & 8 ? 16u : 1u)};
    input.take(own.set_id.data(), 16);
    name = own_name(own);
    const auto parsed = parse_own_name(name);
    if (!parsed || parsed->kind != own.kind || parsed->set_id != own.set_id ||
        (own.kind == OwnKind::set_temporary && parsed->index != own.index))
      wrong("a name of ours is not recognised");
    while (input.left() >= 2) name[input.byte() % name.size()] = static_cast<char>(input.byte());
  } else {
    name.resize(input.left());
    input.take(name.data(), name.size());
  }
  if (const auto own = parse_own_name(name); own && own_name(*own) != name) wrong("a name that we do not write");
  if (const auto shard = parse_shard_file_name(name);
      shard && (shard->first.empty() || shard->second > 4095 || shard_file_name(shard->first, shard->second) != name))
    wrong("a shard file's name that we do not write");
}

}  // namespace
}  // namespace tandem::files

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::FuzzInput input(data, size);
  const unsigned kind = input.byte();
  const bool sum = kind < 0xe0;
  if (kind % 4 < 2) {
    tandem::files::fuzz_record(input, sum);
  } else if (kind % 4 == 2) {
    tandem::files::fuzz_commit_record(input, sum, (kind & 8) != 0);
  } else {
    tandem::files::fuzz_names(input);
  }
  return 0;
}
