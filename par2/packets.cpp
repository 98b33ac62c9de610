// SPDX-License-Identifier: Apache-2.0
#include "par2/packets.hpp"

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/utf8.hpp"

namespace tandem::par2 {
namespace {

using base::load;

constexpr std::string_view kTypes[] = {
    {"PAR 2.0\0Main\0\0\0\0", 16}, {"PAR 2.0\0FileDesc", 16}, {"PAR 2.0\0IFSC\0\0\0\0", 16},  {"PAR 2.0\0RecvSlic", 16},
    {"PAR 2.0\0Creator\0", 16},    {"PAR 2.0\0UniFileN", 16}, {"Tandem\0\0Kept\0\0\0\0", 16},
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

void append(Bytes &to, const void *bytes, std::size_t count) {
  to.resize(to.size() + count);
  if (count != 0) std::memcpy(to.data() + to.size() - count, bytes, count);
}
template <class Value>
void append(Bytes &to, const Value &value) {
  append(to, &value, sizeof value);
}
void append_text(Bytes &to, std::string_view text) { append(to, text.data(), text.size()); }
void pad(Bytes &to) { to.resize((to.size() + 3) / 4 * 4); }

void write_header(std::byte *at, Kind kind, const Digest &set_id, std::uint64_t packet_bytes) {
  std::memcpy(at, kMagic, sizeof kMagic);
  base::store(at + 8, packet_bytes);
  std::memcpy(at + 32, set_id.data(), set_id.size());
  std::memcpy(at + 48, kTypes[static_cast<std::size_t>(kind)].data(), 16);
}

}  // namespace

std::optional<Header> parse_header(std::span<const std::byte> bytes, std::uint64_t left_bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return {};
  Header header;
  header.bytes = load<std::uint64_t>(bytes.data() + 8);
  if (header.bytes < kHeaderBytes || header.bytes % 4 != 0 || header.bytes > left_bytes) return {};
  header.md5 = load<Digest>(bytes.data() + 16);
  header.set_id = load<Digest>(bytes.data() + 32);
  const auto type = std::ranges::find(kTypes, text_of(bytes.subspan(48, 16)));
  header.kind = static_cast<Kind>(type - std::begin(kTypes));
  return header;
}

std::optional<Main> parse_main(std::span<const std::byte> body) {
  if (body.size() < 12 || (body.size() - 12) % sizeof(Digest) != 0) return {};
  Main main;
  main.slice_bytes = load<std::uint64_t>(body.data());
  const std::uint32_t recoverable = load<std::uint32_t>(body.data() + 8);
  const std::size_t count = (body.size() - 12) / sizeof(Digest);
  if (main.slice_bytes == 0 || main.slice_bytes % 4 != 0 || recoverable > count) return {};
  for (std::size_t i = 0; i < count; ++i)
    (i < recoverable ? main.recoverable : main.others).push_back(load<Digest>(body.data() + 12 + sizeof(Digest) * i));
  return main;
}

std::optional<Description> parse_description(std::span<const std::byte> body) {
  if (body.size() <= 56) return {};
  Description file;
  file.id = load<Digest>(body.data());
  file.md5 = load<Digest>(body.data() + 16);
  file.md5_of_beginning = load<Digest>(body.data() + 32);
  file.bytes = load<std::uint64_t>(body.data() + 48);
  const std::string_view padded = text_of(body.subspan(56));
  file.name = padded.substr(0, padded.find('\0'));
  if (file.bytes > kMostFileBytes || padded.find_first_not_of('\0', file.name.size()) != std::string_view::npos)
    return {};
  if (id_of(file) != file.id) return {};
  return file;
}

std::optional<Sums> parse_sums(std::span<const std::byte> body) {
  constexpr std::size_t kEach = 20;
  if (body.size() < 16 || (body.size() - 16) % kEach != 0 || (body.size() - 16) / kEach > kMostSlices) return {};
  Sums sums{load<Digest>(body.data()), {}};
  for (std::size_t at = 16; at < body.size(); at += kEach)
    sums.sums.push_back({load<Digest>(body.data() + at), load<std::uint32_t>(body.data() + at + 16)});
  return sums;
}

std::optional<Kept> parse_kept(std::span<const std::byte> body) {
  constexpr std::size_t kEach = sizeof(Digest) + 8;
  if (body.size() < 8 || (body.size() - 8) % kEach != 0) return {};
  Kept kept{load<double>(body.data()), {}};
  if (!(kept.recovery_percent > 0 && kept.recovery_percent <= 1e6)) return {};
  for (std::size_t at = 8; at < body.size(); at += kEach)
    kept.modified_ns.emplace_back(load<Digest>(body.data() + at),
                                  load<std::int64_t>(body.data() + at + sizeof(Digest)));
  return kept;
}

std::string utf8_of(std::span<const std::byte> utf16) {
  std::string name;
  for (; utf16.size() >= 2; utf16 = utf16.subspan(2)) {
    std::uint32_t character = load<std::uint16_t>(utf16.data());
    if ((character & 0xf800) == 0xd800) {  // the first of two
      const std::uint32_t second = utf16.size() >= 4 ? load<std::uint16_t>(utf16.data() + 2) : 0;
      if (character >= 0xdc00 || (second & 0xfc00) != 0xdc00) return {};
      character = 0x10000 + ((character & 0x3ff) << 10 | (second & 0x3ff));
      utf16 = utf16.subspan(2);
    }
    const unsigned more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;  // bytes
    constexpr unsigned kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    name += static_cast<char>(kFirst[more] | character >> 6 * more);
    for (unsigned i = more; i != 0; --i) name += static_cast<char>(0x80 | (character >> 6 * (i - 1) & 0x3f));
  }
  return utf16.empty() ? name : "";
}

std::optional<std::pair<Digest, std::string>> parse_unicode(std::span<const std::byte> body) {
  if (body.size() < sizeof(Digest)) return {};
  std::string name = utf8_of(body.subspan(sizeof(Digest)));
  name.resize(name.find_last_not_of('\0') + 1);
  if (name.empty()) return {};
  return std::pair(load<Digest>(body.data()), name);
}

bool is_safe_name(std::string_view name) {
  if (name.find('\0') != std::string_view::npos) return false;
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

bool is_less(const Digest &a, const Digest &b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

Digest id_of(const Description &file) {
  Bytes bytes;
  append(bytes, file.md5_of_beginning);
  append(bytes, file.bytes);
  append_text(bytes, file.name);
  return Md5::of(bytes.data(), bytes.size());
}

Bytes main_body(const Main &main) {
  Bytes body;
  append(body, main.slice_bytes);
  append(body, static_cast<std::uint32_t>(main.recoverable.size()));
  for (const auto *ids : {&main.recoverable, &main.others})
    for (const Digest &id : *ids) append(body, id);
  return body;
}

Bytes description_body(const Description &file) {
  Bytes body;
  append(body, file.id);
  append(body, file.md5);
  append(body, file.md5_of_beginning);
  append(body, file.bytes);
  append_text(body, file.name);
  pad(body);
  return body;
}

Bytes sums_body(const Digest &id, std::span<const SliceSum> sums) {
  Bytes body;
  append(body, id);
  for (const SliceSum &sum : sums) {
    append(body, sum.md5);
    append(body, sum.crc);
  }
  return body;
}

Bytes unicode_body(const Description &file) {
  if (std::ranges::all_of(file.name, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return {};
  Bytes body;
  append(body, file.id);
  for (std::string_view name = file.name; !name.empty();) {
    const auto [length, is_valid] = base::first_utf8(name);
    if (!is_valid) return {};
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(name[i])); };
    std::uint32_t character = length == 1 ? byte(0) : byte(0) & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) character = character << 6 | (byte(i) & 0x3f);
    if (character < 0x10000) {
      append(body, static_cast<std::uint16_t>(character));
    } else {
      append(body, static_cast<std::uint16_t>(0xd800 + ((character - 0x10000) >> 10)));
      append(body, static_cast<std::uint16_t>(0xdc00 + ((character - 0x10000) & 0x3ff)));
    }
    name.remove_prefix(length);
  }
  pad(body);
  return body;
}

Bytes creator_body(std::string_view text) {
  Bytes body;
  append_text(body, text);
  pad(body);
  return body;
}

Bytes kept_body(const Kept &kept) {
  Bytes body;
  append(body, kept.recovery_percent);
  for (const auto &[id, modified_ns] : kept.modified_ns) {
    append(body, id);
    append(body, modified_ns);
  }
  return body;
}

Bytes packet(Kind kind, const Digest &set_id, std::span<const std::byte> body) {
  Bytes bytes(kHeaderBytes);
  append(bytes, body.data(), body.size());
  write_header(bytes.data(), kind, set_id, bytes.size());
  base::store(bytes.data() + 16, Md5::of(bytes.data() + kHashedFrom, bytes.size() - kHashedFrom));
  return bytes;
}

RecoveryPrefix recovery_prefix(const Digest &set_id, std::uint32_t exponent, std::uint64_t slice_bytes) {
  RecoveryPrefix prefix{};
  write_header(prefix.bytes, Kind::recovery, set_id, kRecoveryPrefixBytes + slice_bytes);
  base::store(prefix.bytes + kHeaderBytes, exponent);
  return prefix;
}

}  // namespace tandem::par2
