// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the parsers of bytes and names from a disk: the record of a shard file, the names of temporaries. In memory
// only. The checksum is corrected first, unless the input says no, so that the code behind
// its check runs. The oracle is a second, independent statement of the limits of docs/format.md.
#include <string>

#include "files/format.hpp"
#include "files/names.hpp"
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
  written.set.name.resize(input.byte());
  input.take(written.set.name.data(), written.set.name.size());
  written.set.replaced.resize(input.byte() % (kMaxReplacedCount + 1));
  for (SetId &id : written.set.replaced) input.take(id.data(), id.size());
  std::array<std::byte, kRecordBytes> bytes;
  write_record(written, bytes);
  edit_and_sum(input, bytes.data(), bytes.size(), sum);

  const std::byte *at = bytes.data();
  const auto word = [at](std::size_t offset) { return std::uint64_t{load<std::uint32_t>(at + offset)}; };
  constexpr unsigned char magic[] = {0x89, 'T', 'N', 'D', 'M', '\r', '\n', 0x1a};
  const std::uint64_t k = word(32), m = word(36), index = word(48), block = word(52), mode = word(56),
                      folders = word(60), end = word(12);
  const bool has_magic = std::memcmp(at, magic, sizeof magic) == 0;
  const std::uint64_t version = word(8), name_bytes = word(88), replaced = word(92);
  // What it leads to are plain names: of at most 255 bytes, with the longest index.
  const std::string_view name(reinterpret_cast<const char *>(at) + 96, std::min<std::uint64_t>(name_bytes, 256));
  const bool has_plain_name = name_bytes + (k + m > 1000 ? 12 : 11) <= 255 && name.find('/') == std::string::npos &&
                              name.find('\0') == std::string::npos;
  const bool in_limits = (end == 1 || end == 2) && k >= 1 && k + m <= 4096 && (k + m > 256) == (version == 3) &&
                         index < k + m && block >= 64 && block <= 1u << 24 && block % 64 == 0 &&
                         (k + m) * block <= 1u << 28 && (mode <= 0777 || mode == UINT32_MAX) && folders <= k + m &&
                         load<std::uint64_t>(at + 64) <= std::uint64_t{1} << 60 && replaced <= 233 &&
                         (name_bytes == 0 || has_plain_name);

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
  if (std::memcmp(again.data(), at, 96 + name_bytes) != 0 ||
      std::memcmp(again.data() + 352, at + 352, 16 * replaced) != 0)
    wrong("a record that reads back differently");
}

void fuzz_names(FuzzInput &input) {
  std::string name;
  if (const unsigned flags = input.byte(); flags & 1) {
    OwnName own{static_cast<OwnKind>(flags >> 1 & 1), {}, input.byte() * (flags & 8 ? 16u : 1u)};
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
  if (const auto own = parse_own_name(name); own && own->kind != OwnKind::old_record && own_name(*own) != name)
    wrong("a name that we do not write");
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
  if (kind % 4 < 3) {
    tandem::files::fuzz_record(input, sum);
  } else {
    tandem::files::fuzz_names(input);
  }
  return 0;
}
