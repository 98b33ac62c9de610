// SPDX-License-Identifier: Apache-2.0
// Fuzzer of the packets of PAR2 files, and of PAR1 files. An input becomes a file in memory. Checksums are corrected
// first, unless the input says no, so that the code behind their check runs. The oracle states the limits a second
// time: a set that is accepted stays within them, and each intact packet of another writer is found.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "par2/set.hpp"
#include "tests/fuzz/input.hpp"

namespace tandem::par2 {
namespace {

using test::FuzzInput;

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "WRONG: %s\n", what);
  std::abort();
}

Description take_description(FuzzInput &input) {
  Description file{{}, {}, {}, input.number<std::uint16_t>(), ""};
  if (input.byte() % 16 == 0) file.bytes = input.number<std::uint64_t>();
  static constexpr const char *kNames[] = {"a", "b/c", "../d", "/e", "f//g", "h/..", "\xff", "name\\x"};
  file.name = kNames[input.byte() % std::size(kNames)];
  if (const std::uint8_t more = input.byte(); more % 4 == 0) file.name += static_cast<char>(input.byte());
  file.id = id_of(file);
  return file;
}

// Bytes of a body change, grow or vanish.
void edit(FuzzInput &input, Bytes &body) {
  for (unsigned count = input.byte() % 4; count != 0 && !body.empty(); --count) {
    const std::size_t at = input.number<std::uint16_t>() % body.size();
    const std::uint8_t how = input.byte();
    if (how < 0xc0) body[at] = static_cast<std::byte>(input.byte());
    if (how >= 0xc0) body.resize(at / 4 * 4);
  }
}

Bytes take_file(FuzzInput &input, std::uint8_t first) {
  std::vector<Description> files;
  for (unsigned count = first % 4; count != 0; --count) files.push_back(take_description(input));
  Main main{std::uint64_t{4} << input.byte() % 16, {}, {}};
  if (input.byte() % 16 == 0) main.slice_bytes = input.number<std::uint64_t>();
  for (const Description &file : files) (input.byte() % 8 == 0 ? main.others : main.recoverable).push_back(file.id);
  Bytes main_bytes = main_body(main);
  edit(input, main_bytes);
  const Digest id = Md5::of(main_bytes.data(), main_bytes.size());
  Bytes all;
  const auto add = [&](Kind kind, Bytes body) {
    if (kind != Kind::main) edit(input, body);
    Bytes bytes = packet(kind, id, body);
    const std::uint8_t damage = input.byte();  // after the checksum
    if (damage == 1) base::store(bytes.data() + 8, input.number<std::uint64_t>());
    if (damage == 2) bytes[input.number<std::uint16_t>() % bytes.size()] ^= std::byte{1};
    if (damage == 3) bytes.resize(input.number<std::uint16_t>() % bytes.size());
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  add(Kind::main, main_bytes);
  for (const Description &file : files) {
    add(Kind::description, description_body(file));
    const std::uint64_t slices = main.slice_bytes != 0 ? slices_of(file.bytes, main.slice_bytes) : 0;
    add(Kind::sums, sums_body(file.id, std::vector<SliceSum>(slices % 64 + (input.byte() == 9))));
    Bytes recovery(4 + main.slice_bytes % 4096);
    base::store(recovery.data(), std::uint32_t{input.byte()} << input.byte() % 32);
    add(Kind::recovery, recovery);
  }
  add(Kind::creator, creator_body("fuzzer"));
  while (input.left() > 1) all.push_back(static_cast<std::byte>(input.byte()));
  return all;
}

Bytes take_par1_file(FuzzInput &input) {
  Bytes all(96), list;
  const auto number = [&](std::uint64_t right) {
    return input.byte() % 16 == 0 ? input.number<std::uint64_t>() : right;
  };
  std::uint64_t count = input.byte() % 4;
  for (std::uint64_t i = 0; i < count; ++i) {
    Bytes entry(56 + input.byte() % 9);
    base::store(entry.data(), number(entry.size()));
    base::store(entry.data() + 8, std::uint64_t{input.byte()});
    base::store(entry.data() + 16, number(input.byte()));
    for (std::size_t at = 56; at < entry.size(); ++at) entry[at] = static_cast<std::byte>(input.byte());
    list.insert(list.end(), entry.begin(), entry.end());
  }
  all.insert(all.end(), list.begin(), list.end());
  const std::uint64_t data_bytes = input.byte();
  std::memcpy(all.data(), "PAR\0\0\0\0\0\0\0\1", 11);
  const std::uint64_t fields[] = {input.byte(), count, 96, list.size(), all.size(), data_bytes};
  for (std::size_t i = 0; i < std::size(fields); ++i) base::store(all.data() + 48 + 8 * i, number(fields[i]));
  all.resize(all.size() + data_bytes);
  edit(input, all);
  if (all.size() > kHashedFrom && input.byte() != 1)
    base::store(all.data() + 16, Md5::of(all.data() + kHashedFrom, all.size() - kHashedFrom));
  return all;
}

void check_par1(const Set &set, std::uint64_t file_bytes) {
  if (set.slice_bytes == 0 || set.slice_bytes > std::uint64_t{1} << 48) wrong("slice size");
  std::uint64_t slices = 0;
  for (const File &file : set.files) {
    if (file.name.empty() || file.name == "." || file.name == ".." ||
        file.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      wrong("name");
    for (std::string_view name = file.name; !name.empty();) {
      const auto [length, is_valid] = base::first_utf8(name);
      if (!is_valid) wrong("UTF-8");
      name.remove_prefix(length);
    }
    if (file.slice_count != file.is_recoverable) wrong("slices");
    if (file.is_recoverable && (file.first_slice != slices++ || file.bytes > set.slice_bytes)) wrong("slice");
  }
  if (slices != set.slice_count || slices > 255) wrong("number of slices");
  for (const RecoverySlice &each : set.recovery)
    if (each.exponent + slices > 255 || each.offset + set.slice_bytes > file_bytes) wrong("recovery slice");
}

void check(const Set &set, std::uint64_t file_bytes) {
  if (set.is_par1) return check_par1(set, file_bytes);
  if (set.slice_bytes == 0 || set.slice_bytes % 4 != 0) wrong("slice size");
  if (set.slice_count > 32768 || set.files.size() > 65536) wrong("counts");
  std::uint64_t slices = 0;
  for (const File &file : set.files) {
    const std::string around = "/" + file.name + "/";
    const bool is_safe = around.find("/../") == std::string::npos && around.find("/./") == std::string::npos &&
                         around.find("//") == std::string::npos && file.name.find('\0') == std::string::npos;
    if (!is_safe && file.name_error == 0) wrong("name");
    const std::uint64_t whole = file.bytes / set.slice_bytes, rest = file.bytes % set.slice_bytes != 0;
    if (file.is_recoverable && (file.slice_count != whole + rest || file.first_slice != slices)) wrong("slices");
    if (!file.sums.empty() && file.sums.size() != whole + rest) wrong("checksums");
    slices += file.slice_count;
  }
  if (slices != set.slice_count) wrong("number of slices");
  for (std::size_t i = 0; i < set.recovery.size(); ++i) {
    if (set.recovery[i].exponent >= 65535) wrong("exponent");
    if (i != 0 && set.recovery[i].exponent <= set.recovery[i - 1].exponent) wrong("order of exponents");
    if (set.recovery[i].offset + set.slice_bytes > file_bytes) wrong("place of a recovery slice");
  }
  if (set.packet_files[0].used_bytes > file_bytes) wrong("used bytes");
}

void fuzz(FuzzInput &input) {
  const std::uint8_t first = input.byte();
  const Bytes bytes = first == 0xff ? take_par1_file(input) : take_file(input, first);
  const int descriptor = memfd_create("par2", MFD_CLOEXEC);
  if (descriptor < 0 || write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    wrong("no file in memory");
  base::Crew crew(0);
  base::Meter meter;
  try {
    const std::vector<std::string> paths = {"/proc/self/fd/" + std::to_string(descriptor)};
    check(first == 0xff ? read_par1_set(paths, crew, meter) : read_set(paths, crew, meter), bytes.size());
  } catch (const base::Error &error) {
    constexpr tandem_status kExpected[] = {TANDEM_ERROR_DAMAGED, TANDEM_ERROR_NOT_RECOVERABLE, TANDEM_ERROR_TOO_LARGE,
                                           TANDEM_ERROR_UNSUPPORTED};
    if (std::ranges::find(kExpected, error.status()) == std::end(kExpected)) wrong("status");
  }
  close(descriptor);
}

}  // namespace
}  // namespace tandem::par2

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  tandem::test::FuzzInput input(data, size);
  tandem::par2::fuzz(input);
  return 0;
}
